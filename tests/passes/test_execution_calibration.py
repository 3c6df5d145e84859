"""Calibration data as the workers of passes read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from micro_models import made

from autoopt.data import DataConfig, register_load_dataset
from autoopt.data.dataset import DataSet
from autoopt.model import io
from autoopt.passes.execution.calibration import calibration_source

READ: list[str] = []
"""The models for which `counted_items` was read."""


@register_load_dataset("counted_items")
def counted_items(model: str) -> DataSet:
    READ.append(model)
    return DataSet({"x": np.zeros((2, 3), np.float32)})


@pytest.fixture
def model() -> onnx.ModelProto:
    return made("g (float[n, 3] x) => (float[n, 3] y) { y = Neg (x) }")


def values(config: object, model: onnx.ModelProto, path: Path) -> list[float]:
    return [float(feed["x"][0, 0]) for feed in calibration_source(config, model, path)()]


def test_a_changed_file_is_read_again(model: onnx.ModelProto, tmp_path: Path) -> None:
    path = io.save(model, tmp_path)
    file = tmp_path / "items.npz"
    for value in (1.0, 2.0):
        np.savez(file, x=np.full((2, 3), value, np.float32))
        assert values({"path": str(file)}, model, path) == [value, value]


def test_a_loader_of_the_user_sees_each_model_once(model: onnx.ModelProto, tmp_path: Path) -> None:
    config = DataConfig.parse({"load_dataset": {"type": "counted_items"}})
    paths = [io.save(model, tmp_path / name) for name in "ab"]
    for path in paths:
        for _ in range(2):
            assert values(config, model, path) == [0.0, 0.0]
    assert list(map(str, paths)) == READ


def test_made_up_data_have_the_kinds_that_the_user_gives(tmp_path: Path) -> None:
    model = made("g (float[N, M] sound, int64[N] count) => (float[N, M] y) { y = Relu (sound) }")
    config = {"load_dataset": {"type": "synthetic"}}
    feeds = calibration_source(config, model, io.save(model, tmp_path), {"count": "length"})()
    assert all(feed["count"] == feed["sound"].shape[1] for feed in feeds)


@pytest.mark.parametrize(
    ("starts", "states"), [(None, [0, 1, 2, 3]), ([0], [10, 11, 12, 13]), ([0, 2], [10, 11, 30, 31])]
)
def test_states_are_the_models_own_from_the_start_of_each_sequence(
    starts: list[int] | None, states: list[float], tmp_path: Path
) -> None:
    model = made("g (float[1, 1] x, float[1, 1] h) => (float[1, 1] next) { next = Add (x, h) }")
    path = io.save(model, tmp_path / "model")
    file = tmp_path / "items.npz"
    recorded = np.array([[10], [20], [30], [40]], np.float32)
    np.savez(file, x=np.ones((4, 1), np.float32), h=recorded)
    config = {"path": str(file), "state": {"next": "h"}, "starts": starts}
    assert [float(feed["h"].item()) for feed in calibration_source(config, model, path)()] == states
