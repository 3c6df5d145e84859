"""numpy files: one array per model input, items along axis 0, optional `labels`. Pickled content is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from autoopt.data.dataset import Array, DataSet
from autoopt.errors import InputError, did_you_mean

_RUINED = (ValueError, OSError, EOFError, zipfile.BadZipFile)


def load_npz(path: str, label_name: str = "labels") -> DataSet:
    """An `.npz` file; `label_name` is the array that holds the ground truth, where there is one.

    Raises:
        InputError: not readable as plain arrays, or no array of that name when it was asked for.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            columns: dict[str, Array] = {name: file[name] for name in file.files}
    except _RUINED as error:
        raise InputError(f"not a readable .npz file without pickles ({error})", where=path) from error
    if label_name != "labels" and label_name not in columns:
        raise InputError(f"has no array {label_name!r}", where=path, remedy=did_you_mean(label_name, columns))
    truth = columns.pop(label_name, None)
    return DataSet(columns, truth, name=path)


def load_npy(path: str, labels: str | None = None) -> DataSet:
    """One `.npy` file with the items of a model's only input; `labels` is another such file.

    Raises:
        InputError: not readable as plain arrays.
    """
    truth = None if labels is None else _array(labels)
    return DataSet({Path(path).stem: _array(path)}, truth, name=path)


def _array(path: str) -> Array:
    try:
        loaded: Array = np.load(path, allow_pickle=False)
    except _RUINED as error:
        raise InputError(f"not a readable .npy file without pickles ({error})", where=path) from error
    return loaded
