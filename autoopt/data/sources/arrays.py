"""Files of arrays: numpy's, and ONNX test data (`test_data_set_*/input_*.pb` with expected outputs beside them).

A numpy file has one array per model input, items along axis 0, optional `labels`. Pickled content is refused.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet
from autoopt.data.files import LABELS, check_columns
from autoopt.errors import InputError, did_you_mean
from autoopt.model.roles import TOKEN_NAMES
from autoopt.option_names import option

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
        remedy = f"name one: {option('label', candidates[0])}"
        raise InputError(f"{names} may both be the labels", where=path, remedy=remedy)
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


def load_onnx_test_data(path: str, labels: bool = False, choose: Choose | None = None) -> DataSet:
    """Load the data sets below a folder, one item each, in the order of their numbers.

    Inputs have the names of their tensors, or of their files (`input_0`, `input_1`) if those have no names. A folder
    that holds `input_*.pb` itself is one item. With `labels`, the first expected output of an item is its label.

    Raises:
        InputError: There are no inputs, the data sets have different inputs, or a file is not a tensor.
    """
    root = Path(path)
    folders = sorted(root.glob("test_data_set_*"), key=_number) or [root]
    if choose is not None:
        folders = [folders[index] for index in choose(len(folders))]
    truth = _test_labels(folders, path) if labels else None
    return DataSet({}, truth, _test_inputs(folders, path), name=path)


def _test_inputs(folders: list[Path], path: str) -> dict[str, list[Array]]:
    items = [_tensors(folder, "input") for folder in folders]
    if not items[0]:
        raise InputError("holds no input_*.pb", where=str(folders[0]))
    if any(item.keys() != items[0].keys() for item in items):
        raise InputError("the data sets have different inputs", where=path)
    inputs = {}
    for name in items[0]:
        inputs[name] = [item[name] for item in items]
    return inputs


def _test_labels(folders: list[Path], path: str) -> Array:
    outputs: list[Array] = []
    for folder in folders:
        outputs += list(_tensors(folder, "output").values())[:1]
    if len(outputs) < len(folders) or len({output.shape for output in outputs}) > 1:
        raise InputError("expected outputs are missing or differ in shape", where=path)
    stacked = np.stack(outputs)
    return stacked[:, 0] if stacked.ndim > 1 and stacked.shape[1] == 1 else stacked


def _tensors(folder: Path, kind: str) -> dict[str, Array]:
    """The tensors of a kind in a folder, by name."""
    import onnx
    from google.protobuf.message import DecodeError

    arrays: dict[str, Array] = {}
    for file in sorted(folder.glob(f"{kind}_*.pb"), key=_number):
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString(file.read_bytes())
            if tensor.data_location == tensor.EXTERNAL:
                raise ValueError("it refers to another file")
            arrays[tensor.name or file.stem] = onnx.numpy_helper.to_array(tensor)
        except (DecodeError, ValueError, TypeError) as error:
            raise InputError(f"is not a tensor ({error})", where=str(file)) from error
    return arrays


def _number(path: Path) -> tuple[int, str]:
    """The number at the end of a name as a key for sorting."""
    match = re.search(r"(\d+)(?:\.pb)?$", path.name)
    return (-1 if match is None else int(match[1]), path.name)
