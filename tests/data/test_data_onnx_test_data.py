"""ONNX test data."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from autoopt.data import open_data


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
