"""Sessions that are opened once: of the source between first looks, and within a measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import builders
import pytest
from fake_machine import Machine, MakeSession

from autoopt.measure import inference
from autoopt.measure.latency import meter
from autoopt.measure.latency.comparison import Comparison
from autoopt.measure.latency.prepare import OpenSessions, SharedRunners
from autoopt.measure.latency.timer import Subject
from autoopt.measure.latency.timing import Measurement
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.model import io
from autoopt.model.model_file import ModelFile
from autoopt.target import Target


@pytest.fixture
def request_(tmp_path: Path) -> MeasureRequest:
    source = ModelFile(str(io.save(builders.mlp(), tmp_path / "source")))
    return MeasureRequest(
        candidate=replace(source, session_options={"graph_optimization_level": "disable"}),
        source=source,
        settings=MeasurementSettings(replicas=2, target_width=0.1),
        brief=True,
        reuses_source=True,
    )


class Openings:
    """Makes subjects on a fake machine, and counts the sessions of each model."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.opened: list[ModelFile] = []

    def subject_of(self, model: ModelFile) -> Subject:
        make: MakeSession = self.machine.model(1000 if not model.session_options else 500)

        def make_counted(number: int) -> Callable[[], None]:
            self.opened.append(model)
            return make(number)

        return Subject(make_counted)

    def measure(self, sessions: OpenSessions, request: MeasureRequest) -> float:
        source_subject = sessions.reusing(request, self.subject_of)(request.source)
        comparison = Comparison(self.subject_of(request.candidate), source_subject)
        if request.is_source:
            comparison = Comparison(source_subject, None)
        Measurement([comparison], request.settings, request.brief).run()
        return comparison.estimate().value


def test_later_first_looks_open_sessions_of_the_candidate_only(machine: Machine, request_: MeasureRequest) -> None:
    openings, sessions = Openings(machine), OpenSessions()
    assert openings.measure(sessions, request_) == pytest.approx(0.5, rel=0.02)
    assert openings.opened.count(request_.source) == 2
    later = replace(request_, settings=replace(request_.settings, incumbent_ratio=0.5, source_ms=1.0))
    for _ in range(3):
        assert openings.measure(sessions, later) == pytest.approx(0.5, rel=0.02)
    assert openings.opened.count(request_.source) == 2
    assert openings.opened.count(request_.candidate) == 8


def test_the_first_measurement_of_the_source_leaves_its_sessions(machine: Machine, request_: MeasureRequest) -> None:
    openings, sessions = Openings(machine), OpenSessions()
    assert request_.source is not None
    openings.measure(sessions, replace(request_, candidate=request_.source))
    openings.measure(sessions, request_)
    assert openings.opened.count(request_.source) == 2


def test_measurements_that_decide_get_new_sessions(machine: Machine, request_: MeasureRequest) -> None:
    openings, sessions = Openings(machine), OpenSessions()
    for _ in range(2):
        openings.measure(sessions, replace(request_, reuses_source=False))
    assert openings.opened.count(request_.source) == 4


@pytest.mark.parametrize(
    "other",
    [
        {"target": Target(threads=2)},
        {"settings": MeasurementSettings(replicas=2, target_width=0.1, batch_size=4)},
        {"metrics": ("latency_p50", "cold_start")},
    ],
    ids=str,
)
def test_sessions_that_differ_are_not_reused(
    machine: Machine, request_: MeasureRequest, other: dict[str, object]
) -> None:
    openings, sessions = Openings(machine), OpenSessions()
    openings.measure(sessions, request_)
    openings.measure(sessions, replace(request_, **other))
    assert openings.opened.count(request_.source) == 4


@pytest.fixture
def request_of_two(tmp_path: Path) -> MeasureRequest:
    """A decoder beside its source, which has other weights."""
    candidate = str(io.save(builders.decoder(seed=1), tmp_path / "candidate"))
    source = str(io.save(builders.decoder(), tmp_path / "source"))
    settings = MeasurementSettings(seconds=0.1, quiet_seconds=0, replicas=1, new_tokens=3)
    metrics = ("latency_p50", "tokens_per_second")
    return MeasureRequest(ModelFile(candidate), ModelFile(source), metrics=metrics, settings=settings)


def test_a_model_with_the_same_options_is_opened_once(request_of_two: MeasureRequest) -> None:
    model = request_of_two.candidate
    runners = SharedRunners(request_of_two, shared=True)
    first = runners.open(model, 0)
    assert runners.open(model, 0) is first
    assert runners.open(model, 1) is not first
    assert runners.open(replace(model, session_options={"intra_op_num_threads": 1}), 0) is not first
    assert runners.replicas == 2
    runners.close()
    assert runners.replicas is None
    assert runners.open(model, 0) is not first


def test_models_that_are_not_shared_are_not_kept(request_of_two: MeasureRequest) -> None:
    runners = SharedRunners(request_of_two)
    assert runners.open(request_of_two.candidate, 0) is not runners.open(request_of_two.candidate, 0)
    assert runners.replicas is None


def test_a_prompt_and_its_steps_share_sessions(request_of_two: MeasureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, int]] = []
    make_session = inference.make_session

    def noted(
        path: str, options: dict[str, int], provider: str, threads: int, timed: bool = True, **more: str
    ) -> object:
        if timed:
            opened.append((path, options.get("intra_op_num_threads", threads)))
        return make_session(path, options, provider, threads, timed=timed, **more)

    monkeypatch.setattr(inference, "make_session", noted)
    reply = meter.measure(request_of_two)
    assert reply.ratios.keys() == {"latency_p50", "tokens_per_second"}
    assert len(opened) == len(set(opened))
