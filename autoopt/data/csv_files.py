"""Files of data sets: images and sounds below a folder, and CSV files, of which some list images or sounds."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePath
from typing import Final, Literal, TypeAlias

from autoopt.errors import InputError

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
