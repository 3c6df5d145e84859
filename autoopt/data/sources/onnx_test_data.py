"""ONNX test data: `test_data_set_*/input_*.pb` with expected outputs beside them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet
from autoopt.errors import InputError


def load(path: str, labels: bool = False, choose: Choose | None = None) -> DataSet:
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
    truth = _labels(folders, path) if labels else None
    return DataSet({}, truth, _inputs(folders, path), name=path)


def _inputs(folders: list[Path], path: str) -> dict[str, list[Array]]:
    items = [_tensors(folder, "input") for folder in folders]
    if not items[0]:
        raise InputError("holds no input_*.pb", where=str(folders[0]))
    if any(item.keys() != items[0].keys() for item in items):
        raise InputError("the data sets have different inputs", where=path)
    inputs = {}
    for name in items[0]:
        inputs[name] = [item[name] for item in items]
    return inputs


def _labels(folders: list[Path], path: str) -> Array:
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
