"""Requests to meters and their replies as records and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.data import DataConfig
from autoopt.errors import InputError
from autoopt.measure.request import MeasureReply, MeasureRequest, Unmeasurable, unpaired_ratio
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Estimate
from autoopt.model.model_file import ModelFile
from autoopt.outcome import Outcome
from autoopt.target import Target
from autoopt.workers.protocol import judge

POSITIVE = st.floats(1e-3, 1e6)


@pytest.fixture
def models(tmp_path: Path) -> dict[str, ModelFile]:
    contents = {"source": b"one", "copy": b"one", "other": b"two"}
    paths = {}
    for name, content in contents.items():
        path = tmp_path / f"{name}.ort"
        path.write_bytes(content)
        paths[name] = ModelFile(str(path))
    return paths


def test_a_request_survives_json(models: dict[str, ModelFile]) -> None:
    request = MeasureRequest(
        candidate=models["other"],
        source=models["source"],
        rivals=(models["copy"], ModelFile("mine.onnx", {"io_binding": True})),
        metrics=("accuracy", "f1"),
        data=DataConfig.parse({"path": "data.npz", "batch_size": 4}),
        target=Target(threads=3),
        settings=MeasurementSettings(seconds=1.5, task_output="scores"),
        user_script="mine.py",
    )
    document = json.loads(json.dumps(request.to_json()))
    assert MeasureRequest.from_json(document) == request
    assert document["data"] == {"path": "data.npz", "batch_size": 4}


def test_a_request_needs_nothing_but_a_candidate() -> None:
    request = MeasureRequest.from_json({"candidate": {"path": "model.onnx"}, "source": None, "data": None})
    assert request == MeasureRequest(ModelFile("model.onnx"))
    assert not request.is_source


def test_data_may_be_a_bare_path() -> None:
    request = MeasureRequest.from_json({"candidate": {"path": "a"}, "data": "data.npz"})
    assert request.data == DataConfig.parse("data.npz")


@pytest.mark.parametrize(("key", "value"), [("data", {"pth": "x"}), ("settings", {"seconds": 0})])
def test_wrong_data_and_settings_are_the_users_mistake(key: str, value: dict[str, object]) -> None:
    with pytest.raises(InputError):
        MeasureRequest.from_json({"candidate": {"path": "a"}, key: value})  # type: ignore[dict-item]


def test_a_candidate_that_equals_the_source_is_the_baseline(models: dict[str, ModelFile]) -> None:
    assert MeasureRequest(models["copy"], models["source"]).is_source
    assert not MeasureRequest(models["other"], models["source"]).is_source


def test_a_reply_survives_json() -> None:
    reply = MeasureReply(
        {"accuracy": Estimate(0.8, 0.7, 0.9)},
        {"accuracy": Estimate(0.9, 0.8, 1.0)},
        details={"items": 3, "drops": {"accuracy": {"value": 0.1, "low": 0.0, "high": 0.2}}},
        rivals=(MeasureReply({"accuracy": Estimate.exact(0.7)}),),
    )
    assert MeasureReply.from_json(json.loads(json.dumps(reply.to_json()))) == reply
    assert reply.drops == {"accuracy": Estimate(0.1, 0.0, 0.2)}
    assert MeasureReply().drops == {}


def test_an_empty_reply_is_read_from_an_empty_object() -> None:
    assert MeasureReply.from_json({}) == MeasureReply()


def test_measured_ratios_come_before_the_quotient_of_the_values() -> None:
    two, one = Estimate.exact(2.0), Estimate.exact(1.0)
    paired = Estimate(1.9, 1.8, 2.1)
    rival = MeasureReply({"a": one}, {"a": two})
    reply = MeasureReply({"a": two, "b": two, "c": two}, {"a": one, "b": one}, {"a": paired}, rivals=(rival,))
    assert reply.with_unpaired_ratios().ratios == {"a": paired, "b": two}
    assert reply.with_unpaired_ratios().rivals[0].ratios == {"a": Estimate.exact(0.5)}


@given(POSITIVE, POSITIVE)
def test_the_ratio_of_exact_values_is_exact(candidate: float, source: float) -> None:
    ratio = unpaired_ratio(Estimate.exact(candidate), Estimate.exact(source))
    assert ratio == Estimate.exact(candidate / source)


@given(POSITIVE, POSITIVE, st.floats(0.01, 0.5), st.floats(0.01, 0.5))
def test_the_interval_of_a_ratio_is_wider_than_that_of_either_value(
    candidate: float, source: float, spread: float, source_spread: float
) -> None:
    ratio = unpaired_ratio(
        Estimate(candidate, candidate * (1 - spread), candidate * (1 + spread)),
        Estimate(source, source * (1 - source_spread), source * (1 + source_spread)),
    )
    assert ratio is not None
    assert ratio.low <= ratio.value <= ratio.high
    assert (ratio.high - ratio.value) / ratio.value >= max(spread, source_spread) * (1 - 1e-9)


@pytest.mark.parametrize("source", [Estimate.exact(0.0), Estimate(1.0, -0.1, 2.0), Estimate(1.0, 0.5, float("inf"))])
def test_values_that_are_not_positive_and_finite_have_no_ratio(source: Estimate) -> None:
    assert unpaired_ratio(Estimate.exact(1.0), source) is None
    assert unpaired_ratio(Estimate(1.0, -1.0, 1.0), Estimate.exact(1.0)) is None


def test_a_mistake_of_the_user_is_a_refusal() -> None:
    assert judge(Unmeasurable("no labels"))[0] is Outcome.REFUSED
