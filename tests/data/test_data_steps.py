"""Built-in steps."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.data import DataConfig, open_data
from autoopt.data.opening import post_processor

X = np.arange(60, dtype=np.float32).reshape(20, 3)


@pytest.fixture
def path(tmp_path):
    np.savez(tmp_path / "d.npz", x=X, extra=X + 1, labels=np.arange(20))
    return str(tmp_path / "d.npz")


def opened(path, **config):
    return open_data({"path": path, **config})


def step(name, **params):
    return {"type": name, "params": params}


def test_pre_processing_changes_only_its_columns(path):
    assert list(opened(path, pre_process=step("select", columns=["x"])).columns) == ["x"]
    assert set(opened(path, pre_process=step("rename", columns={"x": "z"})).columns) == {"z", "extra"}
    assert opened(path, pre_process=step("cast", dtype="int64", columns=["x"])).columns["x"].dtype == np.int64
    scaled = opened(path, pre_process=step("normalize", mean=[1, 2, 3], std=2.0, columns=["x"])).columns["x"]
    np.testing.assert_allclose(scaled, (X - [1, 2, 3]) / 2)
    assert opened(path, pre_process=step("reshape", shape=[1, 3])).columns["x"].shape == (20, 1, 3)


def test_post_processing_makes_predictions(path):
    outputs = [np.array([[0.0, 2.0], [3.0, 1.0]])]
    made = {
        n: post_processor(DataConfig.parse({"path": path, "post_process": n})) for n in ("argmax", "softmax", "sigmoid")
    }
    assert made["argmax"](outputs).tolist() == [1, 0]
    assert made["softmax"](outputs).sum(axis=1) == pytest.approx([1, 1])
    assert made["sigmoid"](outputs)[0, 0] == 0.5
    assert post_processor(DataConfig.parse(path)) is None
