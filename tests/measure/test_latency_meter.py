"""The pace of the source, rivals in one measurement, and what a session of a subject runs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import builders
import numpy as np
import pytest

from autoopt.data.dataset import DataSet
from autoopt.errors import InputError
from autoopt.measure.latency import meter, prepare
from autoopt.measure.latency.meter import on_cores
from autoopt.measure.latency.prepare import subject_of
from autoopt.measure.latency.reply import pace_of
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Estimate
from autoopt.model import io
from autoopt.model.model_file import ModelFile


def request_with(source_ms: float | None) -> MeasureRequest:
    return MeasureRequest(ModelFile("model.onnx"), settings=MeasurementSettings(source_ms=source_ms))


def test_the_pace_is_relative_to_earlier_measurements() -> None:
    assert pace_of(request_with(2.0), 3.0) == 1.5
    assert pace_of(request_with(None), 3.0) is None
    assert pace_of(request_with(2.0), None) is None


@pytest.fixture
def rivals_request(tmp_path: Path) -> MeasureRequest:
    """Two rivals of a candidate, of which one is the source with other options."""
    source = str(io.save(builders.mlp(), tmp_path / "source"))
    other = str(io.save(builders.mlp(seed=1), tmp_path / "other"))
    return MeasureRequest(
        candidate=ModelFile(other),
        source=ModelFile(source),
        rivals=(ModelFile(source, {"graph_optimization_level": "disable"}), ModelFile(source)),
        metrics=("latency_p50",),
        settings=MeasurementSettings(seconds=0.2, quiet_seconds=0, replicas=2),
    )


def test_rivals_are_measured_in_turns_with_the_candidate(rivals_request: MeasureRequest) -> None:
    reply = meter.measure(rivals_request)
    replies = [reply, *reply.rivals]
    assert len(replies) == 3
    assert {single.rivals for single in reply.rivals} == {()}
    assert len({(single.details["pairs"], single.details["shared_variance"]) for single in replies}) == 1
    assert [("identical" in single.details) for single in replies] == [False, False, True]
    assert reply.rivals[1].ratios == {"latency_p50": Estimate.exact(1.0)}
    for single in replies[:2]:
        assert single.details["source_ms"] == reply.details["source_ms"] > 0
        assert single.ratios["latency_p50"].low < single.ratios["latency_p50"].high


def test_rivals_of_the_source_itself_keep_their_ratios(rivals_request: MeasureRequest) -> None:
    assert rivals_request.source is not None
    reply = meter.measure(replace(rivals_request, candidate=rivals_request.source))
    assert reply.ratios == {"latency_p50": Estimate.exact(1.0)}
    assert set(reply.rivals[0].ratios) == {"latency_p50"}


def test_rivals_without_a_source_have_no_ratios(rivals_request: MeasureRequest) -> None:
    reply = meter.measure(replace(rivals_request, source=None))
    for single in (reply, *reply.rivals):
        assert set(single.metrics) == {"latency_p50"}
        assert single.ratios == {}
        assert single.details["source_ms"] is None


def test_a_rival_that_the_runtime_refuses_is_an_error(rivals_request: MeasureRequest, tmp_path: Path) -> None:
    broken = builders.mlp()
    broken.graph.node[1].op_type = "NoSuchOperator"
    rival = ModelFile(str(io.save(broken, tmp_path / "broken")))
    with pytest.raises(Exception, match="NoSuchOperator"):
        meter.measure(replace(rivals_request, rivals=(rival,)))


def test_each_session_runs_a_batch_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelFile(str(io.save(builders.mlp(), tmp_path)))
    data = DataSet({"x": np.arange(32, dtype=np.float32).reshape(4, 8)})
    request = MeasureRequest(model, settings=MeasurementSettings(batch_size=2))
    feeds: list[dict[str, np.ndarray]] = []
    monkeypatch.setattr(prepare, "caller", lambda session, feed, is_bound: feeds.append(feed))
    subject = subject_of(request, data, model)
    for number in range(2):
        subject.make(number)
    assert [feed["x"].shape for feed in feeds] == [(2, 8), (2, 8)]
    assert not np.array_equal(feeds[0]["x"], feeds[1]["x"])
    assert not np.shares_memory(feeds[0]["x"], data.columns["x"])


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_affinity_holds_only_within() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    with on_cores([core]):
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before
    with on_cores([]):
        assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
@pytest.mark.parametrize("core", [9999, 2**40])
def test_a_core_that_the_machine_lacks_is_named(core: int) -> None:
    reason = f"measurement.affinity: this machine has no core {core}; it has "
    with pytest.raises(InputError, match=reason), on_cores([core]):
        pass
