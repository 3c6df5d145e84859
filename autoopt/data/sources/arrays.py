"""numpy files: one array per model input, items along axis 0, optional `labels`. Pickled content is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from autoopt.data.dataset import Array, DataSet
from autoopt.errors import InputError, did_you_mean

_READ_ERRORS = (ValueError, OSError, EOFError, zipfile.BadZipFile)


def load_npz(path: str, label_name: str = "labels") -> DataSet:
    """Load an `.npz` file.

    Args:
        path: The file.
        label_name: The array that holds the ground truth.

    Raises:
        InputError: The file does not hold plain arrays, or has no array with the `label_name` that was asked for.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            columns: dict[str, Array] = dict(file)
    except _READ_ERRORS as error:
        raise InputError(f"not a readable .npz file without pickles ({error})", where=path) from error
    if label_name != "labels" and label_name not in columns:
        raise InputError(f"has no array {label_name!r}", where=path, remedy=did_you_mean(label_name, columns))
    labels = columns.pop(label_name, None)
    return DataSet(columns, labels, name=path)


def load_npy(path: str, labels: str | None = None) -> DataSet:
    """Load an `.npy` file with the items of a model's only input.

    Args:
        path: The file.
        labels: Another such file with the ground truth.

    Raises:
        InputError: A file does not hold a plain array.
    """
    truth = None if labels is None else _read(labels)
    return DataSet({Path(path).stem: _read(path)}, truth, name=path)


def _read(path: str) -> Array:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except _READ_ERRORS as error:
        raise InputError(f"not a readable .npy file without pickles ({error})", where=path) from error
