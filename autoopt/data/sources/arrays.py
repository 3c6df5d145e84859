"""numpy files: one array per model input, items along axis 0, optional `labels`. Pickled content is refused."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autoopt.data.dataset import LABELS, Array, DataSet, check_columns
from autoopt.errors import InputError, did_you_mean
from autoopt.model.roles import TOKEN_NAMES

_READ_ERRORS = (ValueError, OSError, EOFError, zipfile.BadZipFile)


def load_npz(
    path: str,
    label_col: str | None = None,
    input_cols: Sequence[str] | None = None,
    model: str | None = None,
) -> DataSet:
    """Load an `.npz` file.

    `label_col` is the array with the ground truth; by default one that is called as `LABELS` says and
    is no input of the `model`. `input_cols` are the arrays to use as inputs, by default all others.

    Raises:
        InputError: The file does not hold plain arrays, has no such array, or has several that may be the labels.
    """
    columns = _arrays_in(path)
    label = label_col or ("labels" if "labels" in columns else _find_labels(columns, path, model))
    if label and label not in columns:
        raise InputError(f"has no array {label!r}", where=path, remedy=did_you_mean(label, columns))
    labels = columns.get(label)
    if label not in TOKEN_NAMES:  # tokens are the input too; their labels are the next ones
        columns.pop(label, None)
    if input_cols is not None:
        check_columns(columns, input_cols, path)
        columns = {name: columns[name] for name in input_cols}
    return DataSet(columns, labels, name=path)


def _arrays_in(path: str) -> dict[str, Array]:
    """The arrays of an `.npz` file by name."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, Array] = dict(file)
    except _READ_ERRORS as error:
        raise _unreadable(error, path) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy returns the bytes of other files
            raise InputError(f"holds a file that is no array: {name!r}", where=path)
    return arrays


def _find_labels(columns: Mapping[str, Array], path: str, model: str | None) -> str:
    """The array that is called like labels and is no input of the model; empty if there is none."""
    candidates = [name for name in columns if name.lower() in LABELS]
    if candidates and model is not None:
        from autoopt.data.sources.synthetic import read_inputs

        inputs = {spec.name for spec in read_inputs(model).specs}
        candidates = [name for name in candidates if name not in inputs]
    if len(candidates) > 1:
        names = " and ".join(map(repr, candidates))
        raise InputError(f"{names} may both be the labels", where=path, remedy=f"name one: --label {candidates[0]}")
    return next(iter(candidates), "")


def load_npy(path: str, labels: str | None = None) -> DataSet:
    """Load an `.npy` file with the items of a model's only input, and the ground truth from another one.

    Raises:
        InputError: A file does not hold a plain array.
    """
    truth = None if labels is None else _read(labels)
    return DataSet({Path(path).stem: _read(path)}, truth, name=path)


def _read(path: str) -> Array:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except _READ_ERRORS as error:
        raise _unreadable(error, path) from error


def _unreadable(error: Exception, path: str) -> InputError:
    suffix = Path(path).suffix
    if "pickle" in str(error):  # numpy's text advises to load it
        remedy = f"save plain arrays in an {suffix} file"
        return InputError("holds Python objects, which may run code and are not read", where=path, remedy=remedy)
    return InputError(f"not a readable {suffix} file ({error})", where=path)
