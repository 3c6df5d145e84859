"""Requests to meters and their replies as records and as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.measure.request import MeasureReply, MeasureRequest, Unmeasurable, unpaired_ratio
from autoopt.metrics import Estimate
from autoopt.model.model_file import ModelFile
from autoopt.outcome import Outcome
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


@pytest.mark.parametrize(("key", "value"), [("data", {"pth": "x"}), ("settings", {"seconds": 0})])
def test_wrong_data_and_settings_are_the_users_mistake(key: str, value: dict[str, object]) -> None:
    with pytest.raises(InputError):
        MeasureRequest.from_json({"candidate": {"path": "a"}, key: value})  # type: ignore[dict-item]


def test_a_candidate_that_equals_the_source_is_the_baseline(models: dict[str, ModelFile]) -> None:
    assert MeasureRequest(models["copy"], models["source"]).is_source
    assert not MeasureRequest(models["other"], models["source"]).is_source


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
    assert ratio.low <= ratio.value <= ratio.high
    assert (ratio.high - ratio.value) / ratio.value >= max(spread, source_spread) * (1 - 1e-9)


@pytest.mark.parametrize("source", [Estimate.exact(0.0), Estimate(1.0, -0.1, 2.0), Estimate(1.0, 0.5, float("inf"))])
def test_values_that_are_not_positive_and_finite_have_no_ratio(source: Estimate) -> None:
    assert unpaired_ratio(Estimate.exact(1.0), source) is None
    assert unpaired_ratio(Estimate(1.0, -1.0, 1.0), Estimate.exact(1.0)) is None


def test_a_mistake_of_the_user_is_a_refusal() -> None:
    assert judge(Unmeasurable("no labels"))[0] is Outcome.REFUSED
