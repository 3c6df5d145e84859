"""Sessions of the source that stay open between first looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import builders
import pytest
from fake_machine import Machine, MakeSession

from autoopt.measure.latency.measurement import measure_in_turns
from autoopt.measure.latency.open_sessions import OpenSessions
from autoopt.measure.latency.precedence import Precedence
from autoopt.measure.latency.subjects import Subject
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
        source_subject = sessions.reusing(request, self.subject_of)
        subjects = (self.subject_of, source_subject)
        measurement = measure_in_turns(request, request.settings, *subjects, Precedence(), with_source=True)
        return measurement.comparisons[0].estimate().value


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
