"""The pace of the source, repeated attempts, and what a session of a subject runs."""

from __future__ import annotations

import os
from pathlib import Path

import builders
import numpy as np
import pytest

from autoopt.data.dataset import DataSet
from autoopt.measure.latency import meter
from autoopt.measure.latency.meter import PACE, is_slow, pace_of, subject_of, until_paced
from autoopt.measure.request import MeasureRequest, ModelFile
from autoopt.measure.settings import MeasurementSettings
from autoopt.model import io


def request_with(source_ms: float | None) -> MeasureRequest:
    return MeasureRequest(ModelFile("model.onnx"), settings=MeasurementSettings(source_ms=source_ms))


def test_the_pace_is_relative_to_earlier_measurements() -> None:
    assert pace_of(request_with(2.0), 3.0) == 1.5
    assert pace_of(request_with(None), 3.0) is None
    assert pace_of(request_with(2.0), None) is None


def test_a_machine_is_slow_beyond_its_usual_pace() -> None:
    assert is_slow(1 + 1.01 * PACE)
    assert not is_slow(1 + 0.99 * PACE)
    assert not is_slow(None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes with each look at the clock."""
    seconds = iter(range(1000))
    monkeypatch.setattr(meter.time, "monotonic", lambda: float(next(seconds)))


@pytest.mark.usefixtures("clock")
def test_attempts_end_with_the_first_that_is_not_slow() -> None:
    paces = iter([2.0, 1.5, 1.0, 3.0])
    assert until_paced(lambda: next(paces), lambda pace: pace, seconds=100) == 1.0


@pytest.mark.usefixtures("clock")
def test_attempts_end_when_time_is_up() -> None:
    paces = iter([5.0, 4.0, 3.0, 2.0])
    assert until_paced(lambda: next(paces), lambda pace: pace, seconds=2) == 3.0


def test_an_unknown_pace_is_not_repeated() -> None:
    attempts = iter(["first", "second"])
    assert until_paced(lambda: next(attempts), lambda attempt: None, seconds=100) == "first"


def test_each_session_runs_a_batch_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelFile(str(io.save(builders.mlp(), tmp_path)))
    data = DataSet({"x": np.arange(32, dtype=np.float32).reshape(4, 8)})
    request = MeasureRequest(model, settings=MeasurementSettings(batch_size=2))
    feeds: list[dict[str, np.ndarray]] = []
    monkeypatch.setattr(meter, "caller", lambda session, feed, options: feeds.append(feed))
    subject = subject_of(request, model, data)
    for number in range(2):
        subject.make(number)
    assert [feed["x"].shape for feed in feeds] == [(2, 8), (2, 8)]
    assert not np.array_equal(feeds[0]["x"], feeds[1]["x"])
    assert not np.shares_memory(feeds[0]["x"], data.columns["x"])


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_affinity_holds_only_within() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    with meter._affinity([core]):
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before
    with meter._affinity([]):
        assert os.sched_getaffinity(0) == before
