"""ONNX test data."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from autoopt.data.opening import open_data
from autoopt.errors import InputError


def test_data_sets_are_items_in_numeric_order(tmp_path):
    for number in (10, 2):
        folder = tmp_path / f"test_data_set_{number}"
        folder.mkdir()
        for kind, value in (("input_0", [number, 1.0]), ("output_0", [float(number)])):
            tensor = numpy_helper.from_array(np.array([value], np.float32), "x" if kind == "input_0" else "y")
            (folder / f"{kind}.pb").write_bytes(tensor.SerializeToString())
    data = open_data(str(tmp_path))
    assert [float(feed["x"][0, 0]) for feed, _ in data.feeds()] == [2.0, 10.0]
    labelled = open_data(
        {"path": str(tmp_path), "load_dataset": {"type": "onnx_test_data", "params": {"labels": True}}}
    )
    assert labelled.labels.ravel().tolist() == [2.0, 10.0]


def test_data_refers_to_no_other_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.bin").write_bytes(b"\0" * 16)
    tensor = TensorProto(name="x", data_type=1, dims=[1, 4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="secret.bin")
    (tmp_path / "input_0.pb").write_bytes(tensor.SerializeToString())
    with pytest.raises(InputError, match="refers to another file"):
        open_data(str(tmp_path))
