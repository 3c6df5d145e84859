"""ONNX test data: `test_data_set_*/input_*.pb` with expected outputs beside them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet
from autoopt.errors import InputError


def load(path: str, labels: bool = False, choose: Choose | None = None) -> DataSet:
    """The data sets below a folder, one item each, in the order of their numbers. A folder that holds `input_*.pb`
    itself is one item. Inputs are named by their tensors, `input_0`, `input_1` where those have no names.

    `labels` takes the first expected output of each item as its label. `choose` says which data sets are read.

    Raises:
        InputError: no inputs, different inputs from set to set, or a file that is no tensor.
    """
    root = Path(path)
    folders = sorted(root.glob("test_data_set_*"), key=_number) or [root]
    if choose is not None:
        folders = [folders[i] for i in choose(len(folders))]
    items = [_tensors(folder, "input") for folder in folders]
    if not items[0]:
        raise InputError("holds no input_*.pb", where=str(folders[0]))
    if any(set(item) != set(items[0]) for item in items):
        raise InputError("the data sets have different inputs", where=path)
    expected = [next(iter(_tensors(folder, "output").values()), None) for folder in folders] if labels else []
    return DataSet({}, _labels(expected, path), {n: [item[n] for item in items] for n in items[0]}, name=path)


def _labels(expected: list[Array | None], path: str) -> Array | None:
    if not expected:
        return None
    known = [e for e in expected if e is not None]
    if len(known) < len(expected) or len({e.shape for e in known}) > 1:
        raise InputError("expected outputs are missing or differ in shape", where=path)
    whole = np.stack(known)
    return whole[:, 0] if whole.ndim > 1 and whole.shape[1] == 1 else whole


def _tensors(folder: Path, kind: str) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for file in sorted(folder.glob(f"{kind}_*.pb"), key=_number):
        name, array = _read(file)
        found[name or file.stem] = array
    return found


def _read(file: Path) -> tuple[str, Any]:
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import numpy_helper

    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(file.read_bytes())
        return tensor.name, numpy_helper.to_array(tensor)
    except (DecodeError, ValueError, TypeError) as error:
        raise InputError(f"is not a tensor ({error})", where=str(file)) from error


def _number(path: Path) -> tuple[int, str]:
    found = re.search(r"(\d+)(?:\.pb)?$", path.name)
    return (int(found[1]) if found else -1, path.name)
