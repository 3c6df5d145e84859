"""Labels of files in a folder: the sub-folders, or a CSV file of name and label."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autoopt.data.dataset import Array
from autoopt.errors import InputError


def classes_by_folder(root: Path, files: Sequence[Path]) -> Array | None:
    """The classes, which are the names of sub-folders; None if there is only one folder."""
    folders = [file.parent.relative_to(root).as_posix() for file in files]
    names, ids = np.unique(np.array(folders, object), return_inverse=True)
    return ids.astype(np.int64) if len(names) > 1 else None


def labels_by_name(root: Path, files: Sequence[Path], labels: str) -> list[str]:
    """The second cell of the row that begins with each file's name.

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
        if name not in by_name:
            raise InputError(f"no label for {name}", where=labels)
        texts.append(by_name[name])
    return texts
