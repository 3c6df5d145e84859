"""Images or sounds with their labels: a folder with sub-folders or a file of labels, or a CSV file that lists them."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoopt.data.csv_files import files_below, listed_path, loader_of_suffix, read_columns
from autoopt.data.dataset import LABELS, Array, check_columns
from autoopt.errors import InputError


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
