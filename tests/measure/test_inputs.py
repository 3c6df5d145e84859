"""The items that a meter runs."""

from __future__ import annotations

from pathlib import Path

import builders
import numpy as np
import pytest
from onnx import helper

from autoopt.data import DataConfig
from autoopt.errors import InputError
from autoopt.measure import inference
from autoopt.measure.inference import CACHED_DATA_SETS, evaluation_data
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.model import io
from autoopt.model.model_file import ModelFile


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    empty: dict[str, object] = {}
    monkeypatch.setattr(inference, "_cache", empty)
    return empty


@pytest.fixture
def model(tmp_path: Path) -> ModelFile:
    return ModelFile(str(io.save(builders.mlp(), tmp_path)))


def reshaping(folder: Path, size: int) -> ModelFile:
    """A model of an open dimension that takes only multiples of `size` squared."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    x, y = builders.tensor("x", ["batch", "odd"]), builders.tensor("y", ["batch", size, size])
    proto = builders.model(nodes, [x], [y], {"shape": np.array([-1, size, size], np.int64)})
    return ModelFile(str(io.save(proto, folder)))


def test_given_data_are_opened(model: ModelFile, tmp_path: Path) -> None:
    items = np.ones((3, 8), np.float32)
    np.savez(tmp_path / "data.npz", x=items)
    data = evaluation_data(MeasureRequest(model, data=DataConfig.parse(str(tmp_path / "data.npz"))))
    np.testing.assert_array_equal(data.columns["x"], items)


def test_without_data_inputs_are_made_up_for_the_model(model: ModelFile) -> None:
    data = evaluation_data(MeasureRequest(model))
    assert data.name == "synthetic"
    assert {array.shape for array in data.uneven["x"]} == {(1, 8)}


def test_inputs_are_those_of_the_source(model: ModelFile, tmp_path: Path) -> None:
    other = ModelFile(str(io.save(builders.cnn(), tmp_path / "other")))
    data = evaluation_data(MeasureRequest(other, model))
    assert data is evaluation_data(MeasureRequest(model))


def test_sizes_that_the_model_does_not_take_are_replaced(tmp_path: Path) -> None:
    data = evaluation_data(MeasureRequest(reshaping(tmp_path, 8)))
    assert {array.shape for array in data.uneven["x"]} == {(1, 64)}


def test_a_model_that_never_runs_keeps_the_usual_sizes(tmp_path: Path) -> None:
    data = evaluation_data(MeasureRequest(reshaping(tmp_path, 11)))
    assert {array.shape for array in data.uneven["x"]} == {(1, 16)}


def test_settings_size_the_inputs(model: ModelFile) -> None:
    settings = MeasurementSettings(shapes={"x": [5, 8]}, ranges={"x": [2.0, 3.0]})
    data = evaluation_data(MeasureRequest(model, settings=settings))
    assert all(array.shape == (5, 8) and 2 <= array.min() <= array.max() <= 3 for array in data.uneven["x"])


def test_a_model_that_the_runtime_refuses_still_gets_inputs(tmp_path: Path) -> None:
    proto = builders.mlp()
    proto.graph.node[1].op_type = "NoSuchOperator"
    data = evaluation_data(MeasureRequest(ModelFile(str(io.save(proto, tmp_path)))))
    assert data.uneven["x"]


def test_the_last_data_sets_are_cached(model: ModelFile, cache: dict[str, object]) -> None:
    requests = [
        MeasureRequest(model, settings=MeasurementSettings(shapes={"x": [size, 8]}))
        for size in range(1, CACHED_DATA_SETS + 2)
    ]
    first = [evaluation_data(request) for request in requests]
    assert len(cache) == CACHED_DATA_SETS
    assert evaluation_data(requests[-1]) is first[-1]
    assert evaluation_data(requests[0]) is not first[0]


def test_data_that_are_missing_are_named(model: ModelFile) -> None:
    with pytest.raises(InputError, match=r"nowhere\.npz"):
        evaluation_data(MeasureRequest(model, data=DataConfig.parse("/nowhere.npz")))
