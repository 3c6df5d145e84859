"""Files of data sets and their labels: images and sounds below a folder, and CSV files, of which some list such files.

Imported when a run is planned, so it imports no numeric library.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autoopt.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from autoopt.data.dataset import Array

LABELS: Final = ("label", "labels", "target", "targets", "class", "y")
"""Names of arrays and columns that are the ground truth unless the user names another."""


def check_columns(columns: Mapping[str, object], names: Iterable[str], where: str) -> None:
    """Check that columns exist.

    Raises:
        InputError: One does not; names the nearest.
    """
    for name in names:
        if name not in columns:
            raise InputError(f"no column {name!r}", where=where, remedy=did_you_mean(name, columns))


FolderLoader: TypeAlias = Literal["images", "sounds"]
IMAGES: Final = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
SOUNDS: Final = (".wav",)


def folder_loader(path: Path) -> FolderLoader:
    """The loader for the first image or sound below a folder; the loader of images if there is neither."""
    for file in path.rglob("*"):
        loader = loader_of_suffix(file.name)
        if loader is not None:
            return loader
    return "images"


def loader_of_suffix(name: str) -> FolderLoader | None:
    """The loader for a file with this name; None if it is neither an image nor a sound."""
    suffix = PurePath(name).suffix.lower()
    if suffix in SOUNDS:
        return "sounds"
    return "images" if suffix in IMAGES else None


def files_below(root: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files below a folder that have one of the suffixes, sorted by path."""
    return sorted(file for file in root.rglob("*") if file.suffix.lower() in suffixes and file.is_file())


def read_columns(path: str, delimiter: str | None = None) -> tuple[str, dict[str, tuple[str, ...]]]:
    """Read the separator of the fields, and the texts of each column by its name in the header.

    Fields are separated by commas, or by semicolons or tabs if the header has these and no comma.

    Raises:
        InputError: The file cannot be read, there are no rows, rows differ in length, or two columns have one name.
    """
    delimiter, rows = _read_rows(path, delimiter)
    if len(rows) < 2:
        raise InputError("has no rows below its header", where=path)
    header, *body = rows
    names = [name.strip() for name in header]
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"has several columns named {name!r}", where=path)
    for line, row in enumerate(body, 2):
        if len(row) != len(header):
            fields = f"{len(row)} fields separated by {delimiter!r}"
            raise InputError(f"line {line} has {fields}, the header {len(header)}", where=path)
    return delimiter, dict(zip(names, zip(*body, strict=True), strict=True))


def loader_of_list(path: Path, inputs: Sequence[str] | None = None) -> FolderLoader | None:
    """The loader for the images or sounds that a CSV file lists; None for any other file.

    The first two lines decide: the first one shows a list without a header. A list names files that are there. `inputs`
    are the columns that the user chose; a choice of others makes the file a table.
    """
    if path.suffix.lower() not in (".csv", ".tsv") or not path.is_file():
        return None
    try:
        _, rows = _read_rows(str(path), most=2)
    except InputError:
        return None  # the loader of tables says what is wrong
    for row in rows:
        for name, cell in zip(rows[0], row, strict=False):
            is_chosen = inputs is None or list(inputs) == [name.strip()]
            if is_chosen and os.path.isfile(listed_path(path, cell)):
                loader = loader_of_suffix(cell.strip())
                if loader is not None:
                    return loader
    return None


def listed_path(path: Path, cell: str) -> Path:
    """The file that a cell names, from the folder of the list."""
    return path.parent / os.path.expanduser(cell.strip())


def listed_files(path: Path) -> list[Path]:
    """All images and sounds that a list names and that are there; none for any other file."""
    if loader_of_list(path) is None:
        return []
    _, rows = _read_rows(str(path))
    files = []
    for row in rows:
        files += [listed_path(path, cell) for cell in row if loader_of_suffix(cell.strip()) is not None]
    return list(filter(os.path.isfile, files))


def _read_rows(path: str, delimiter: str | None = None, most: int | None = None) -> tuple[str, list[list[str]]]:
    """Read the separator of the fields, and the first rows; all of them without `most`."""
    if delimiter is None and path.lower().endswith(".tsv"):
        delimiter = "\t"
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            delimiter = delimiter or next(filter(stream.readline().__contains__, ",;\t"), ",")
            stream.seek(0)
            return delimiter, list(islice(csv.reader(stream, delimiter=delimiter), most))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"not a readable table ({error})", where=path) from error


@dataclass(frozen=True)
class LabelledFiles:
    """Files with their labels, in one of two forms, or without."""

    files: list[Path]
    texts: list[str] | None = None
    """Labels as they are written in a file."""
    classes: Array | None = None
    """Class ids by sub-folder."""
    names: tuple[str, ...] = ()
    """Names of the sub-folders by class id."""
    reading: str = ""
    """The choice of columns, in words."""


def find_files(
    path: str,
    suffixes: Sequence[str],
    *,
    labels: str | None = None,
    label_col: str | None = None,
    input_cols: Sequence[str] | None = None,
) -> LabelledFiles:
    """Find the files of a folder, in the order of their paths, or those that a CSV file lists.

    Args:
        path: The folder, or the list; the paths in a list start from its folder.
        suffixes: Suffixes of the files in a folder.
        labels: For a folder, a CSV file of name and label; by default the sub-folders are the classes, sorted by name.
        label_col: For a list, the column with the labels; by default one called as in `LABELS`, or the only other one.
        input_cols: For a list, the column with the files; by default the first one with such names.

    Raises:
        InputError: An option that does not apply, a file of labels or a list that cannot be read, a column, file or
            label that does not exist.
    """
    root = Path(path)
    if not root.is_dir():
        if labels is not None:
            raise InputError("labels applies to a folder", where=path, remedy="name the column with label_col")
        return _read_list(root, label_col, input_cols)
    if label_col is not None or input_cols is not None:
        reason = "label_col and input_cols apply to a table, an .npz file or a list of files, not to a folder"
        raise InputError(reason, where=path)
    files = files_below(root, suffixes)
    if labels is not None:
        return LabelledFiles(files, texts=labels_by_name(root, files, labels))
    names, ids = classes_by_folder(root, files)
    return LabelledFiles(files, classes=ids, names=names) if len(names) > 1 else LabelledFiles(files)


def _read_list(path: Path, label_col: str | None, input_cols: Sequence[str] | None) -> LabelledFiles:
    where = str(path)
    _, columns = read_columns(where)
    if any(map(loader_of_suffix, columns)):
        raise InputError("lists files without a header", where=where, remedy="begin it with a line: file,label")
    chosen = [*(input_cols or ()), *_columns_of_files(columns)]
    check_columns(columns, [*chosen, *filter(None, [label_col])], where)
    column = chosen[0]
    files = []
    for line, cell in enumerate(columns[column], 2):
        file = listed_path(path, cell)
        if not os.path.isfile(file):
            raise InputError(f"no such file: {cell}", where=f"{where}:{line}", remedy="paths start from its folder")
        files.append(file)
    others = [name for name in columns if name != column]
    label = label_col or _label_column(others)
    if label is not None:
        reading = f"files of column {column!r}, labels of column {label!r}"
        return LabelledFiles(files, texts=list(map(str.strip, columns[label])), reading=reading)
    reading = f"files of column {column!r}, no labels"
    if others:
        reading += f"; if they are in {' or '.join(map(repr, others))}, name the column by the option label"
    return LabelledFiles(files, reading=reading)


def _columns_of_files(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """The first column with the name of an image or a sound, as a list; empty if there is none."""
    return [name for name, cells in columns.items() if loader_of_suffix(cells[0].strip())][:1]


def _label_column(others: Sequence[str]) -> str | None:
    """The column of the labels among those beside the files: one called as in `LABELS`, else the only one."""
    for name in others:
        if name.lower() in LABELS:
            return name
    return others[0] if len(others) == 1 else None


def classes_by_folder(root: Path, files: Sequence[Path]) -> tuple[tuple[str, ...], Array]:
    """The names of the classes, which are those of the sub-folders, and the class of each file."""
    import numpy as np

    folders = [file.parent.relative_to(root).as_posix() for file in files]
    names, ids = np.unique(np.array(folders, object), return_inverse=True)
    return tuple(map(str, names)), ids.astype(np.int64)


def labels_by_name(root: Path, files: Sequence[Path], labels: str) -> list[str]:
    """The second cell of the row that begins with each file's path, from the folder `root` or that of the labels.

    Raises:
        InputError: The file of labels cannot be read, or a file has no row.
    """
    try:
        with open(labels, newline="", encoding="utf-8-sig") as stream:
            by_name = {row[0]: row[1] for row in csv.reader(stream) if len(row) >= 2}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        remedy = "give a CSV file with the name and the label of each file"
        raise InputError(f"not readable as labels ({error})", where=labels, remedy=remedy) from error
    texts = []
    for file in files:
        name = file.relative_to(root).as_posix()
        from_labels = Path(os.path.relpath(file, Path(labels).parent)).as_posix()
        if name not in by_name and from_labels not in by_name:
            raise InputError(f"no label for {name}", where=labels)
        texts.append(by_name[name] if name in by_name else by_name[from_labels])
    return texts
