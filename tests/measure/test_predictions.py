"""The outputs of models as task metrics take them."""

from __future__ import annotations

from pathlib import Path

import builders
import numpy as np
import pytest
from onnx import helper

from autoopt.data import DataConfig
from autoopt.data.dataset import DataSet
from autoopt.errors import InputError
from autoopt.measure.quality import predictions as module
from autoopt.measure.quality.predictions import (
    has_source_outputs,
    more_outputs_of,
    outputs_of,
    predictions_of,
    same_outputs,
    stack_or_list,
    subset,
)
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.model import io
from autoopt.model.model_file import ModelFile

DATA = DataSet({"x": np.arange(6, dtype=np.float32).reshape(3, 2)})


def predictions(request: MeasureRequest, model: ModelFile, data: DataSet) -> list[object]:
    return predictions_of(request, model, outputs_of(request, model, data))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[object]]:
    empty: dict[str, list[object]] = {}
    monkeypatch.setattr(module, "_cache", empty)
    return empty


@pytest.fixture
def model(tmp_path: Path) -> ModelFile:
    """`x` [n, 2] -> `a` = -x and `b` = |x|."""
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Abs", ["x"], ["b"])]
    outputs = [builders.tensor(name, ["n", 2]) for name in "ab"]
    proto = builders.model(nodes, [builders.tensor("x", ["n", 2])], outputs, {})
    return ModelFile(str(io.save(proto, tmp_path)))


def test_outputs_have_items_along_the_first_axis(model: ModelFile) -> None:
    a, b = predictions(MeasureRequest(model), model, DATA)
    np.testing.assert_array_equal(a, -DATA.columns["x"])
    np.testing.assert_array_equal(b, DATA.columns["x"])


@pytest.mark.parametrize("count", [5, 8, 10])
@pytest.mark.parametrize("is_source", [False, True])
def test_more_outputs_are_those_of_the_larger_subset(model: ModelFile, count: int, is_source: bool) -> None:
    request = MeasureRequest(model, source=model if is_source else None)
    data = DataSet({"x": normal_rows(8)})
    few = outputs_of(request, model, subset(request, data, 3))
    more = more_outputs_of(request, model, data, count, few)
    expected = subset(request, data, count).columns["x"]
    np.testing.assert_array_equal(np.concatenate([item[0] for item in more]), -expected)
    if is_source:
        assert outputs_of(request, model, subset(request, data, count)) is more


def normal_rows(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32)


@pytest.mark.parametrize("chosen", ["b", 1])
def test_the_chosen_output_comes_first(model: ModelFile, chosen: str | int) -> None:
    request = MeasureRequest(model, settings=MeasurementSettings(task_output=chosen))
    first, second = predictions(request, model, DATA)
    np.testing.assert_array_equal(first, DATA.columns["x"])
    np.testing.assert_array_equal(second, -DATA.columns["x"])


@pytest.mark.parametrize("chosen", ["c", 2, -1])
def test_an_output_that_the_model_lacks_is_named(model: ModelFile, chosen: str | int) -> None:
    request = MeasureRequest(model, settings=MeasurementSettings(task_output=chosen))
    with pytest.raises(InputError, match=f"no output {chosen!r}; the model has: a, b"):
        predictions(request, model, DATA)


def test_a_post_processor_makes_the_only_prediction(model: ModelFile, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from autoopt.data import register_post_process\n"
        "@register_post_process('total')\n"
        "def total(outputs):\n"
        "    return outputs[1].sum()\n"
    )
    np.savez(tmp_path / "data.npz", x=DATA.columns["x"])
    config = {"path": str(tmp_path / "data.npz"), "post_process": "total", "user_script": str(script)}
    from autoopt.data.opening import open_data

    data = DataConfig.parse(config)
    (total,) = predictions(MeasureRequest(model, data=data), model, open_data(data))
    np.testing.assert_array_equal(total, [1, 5, 9])


def test_only_outputs_of_the_source_are_cached(model: ModelFile, cache: dict[str, list[object]]) -> None:
    other = ModelFile(model.path, {"enable_mem_pattern": False})
    request = MeasureRequest(other, model)
    outputs_of(request, other, DATA)
    assert not cache
    first = outputs_of(request, model, DATA)
    assert outputs_of(request, model, DATA) is first


def test_the_cache_is_limited(
    model: ModelFile, monkeypatch: pytest.MonkeyPatch, cache: dict[str, list[object]]
) -> None:
    monkeypatch.setattr(module, "CACHE_BYTES", 100)
    for batch in (1, 2, 3):
        request = MeasureRequest(model, model, settings=MeasurementSettings(batch_size=batch))
        outputs_of(request, model, DATA)
    assert len(cache) < 3


def test_a_subset_is_the_same_for_every_model_and_not_the_first_items(model: ModelFile) -> None:
    data = DataSet({"x": np.arange(100.0)})
    request = MeasureRequest(model)
    chosen = subset(request, data, 10).columns["x"]
    np.testing.assert_array_equal(chosen, subset(request, data, 10).columns["x"])
    assert chosen.max() > 20
    assert subset(request, data, 100) is data


def test_recurrent_items_stay_in_their_order(model: ModelFile) -> None:
    request = MeasureRequest(model, settings=MeasurementSettings(state={"a": "x"}))
    data = DataSet({"x": np.arange(100.0)})
    np.testing.assert_array_equal(subset(request, data, 3).columns["x"], [0, 1, 2])


def test_items_of_different_shapes_stay_a_list() -> None:
    assert stack_or_list([np.ones((1, 2)), np.zeros((1, 2))]).shape == (2, 2)  # type: ignore[attr-defined]
    assert isinstance(stack_or_list([np.ones((1, 2)), np.ones((1, 3))]), list)
    assert stack_or_list([{"a": 1}]) == [{"a": 1}]


@pytest.mark.parametrize(
    ("other", "are_same"),
    [
        (np.array([[1.0, 200.0]]), True),
        (np.array([[1.001, 200.0]]), True),
        (np.array([[1.0, 200.1]]), False),
        (np.array([[1.0, np.nan]]), False),
        (np.array([[1.0]]), False),
    ],
)
def test_outputs_are_the_same_up_to_rounding(other: np.ndarray, are_same: bool) -> None:
    assert same_outputs([[np.array([[1.0, 200.0]])]], [[other]]) is are_same


def test_ids_and_texts_are_the_same_only_if_equal() -> None:
    for one, other in ((np.array([100000]), np.array([100001])), (np.array(["a"], object), np.array(["b"], object))):
        assert same_outputs([[one]], [[one.copy()]])
        assert not same_outputs([[one]], [[other]])


def test_sequences_and_maps_are_compared_piece_by_piece() -> None:
    ragged: list[object] = [np.zeros(2), np.zeros((3, 1)), {1: 0.5}]
    assert same_outputs([[ragged]], [[[np.zeros(2), np.zeros((3, 1)), {1: 0.5}]]])
    assert not same_outputs([[ragged]], [[[np.zeros(2), np.ones((3, 1)), {1: 0.5}]]])
    assert not same_outputs([[ragged]], [[ragged[:2]]])
    assert not same_outputs([[[{1: 0.5, 2: 0.5}]]], [[[{1: 0.9, 2: 0.1}]]])


def test_outputs_of_the_source_are_those_of_the_script_as_it_is(model: ModelFile, tmp_path: Path) -> None:
    """A script may run the models of a set."""
    script = tmp_path / "script.py"
    script.write_text("first")
    request = MeasureRequest(model, source=model, user_script=str(script))
    assert outputs_of(request, model, DATA) is outputs_of(request, model, DATA)
    assert has_source_outputs(request, len(DATA))
    script.write_text("other")
    assert not has_source_outputs(request, len(DATA))
