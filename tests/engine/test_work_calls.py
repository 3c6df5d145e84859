"""Calls into hosts: within limits, behind the gate, and never with a quarantined model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from simulation import SimulatedPool, Simulation

from autoopt.engine.work.calls import CallTerms, guarded_call, run_pass
from autoopt.engine.work.context import RunContext
from autoopt.errors import SystemFailure, TimeUp
from autoopt.measure.meters import METERS
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.model.model_file import ModelFile
from autoopt.outcome import Cause, Outcome
from autoopt.passes.request import PassReply, PassRequest, PassStep, StepReply
from autoopt.problem.hosts import CallLimits, Host, HostReply
from autoopt.problem.quarantine import Subject
from autoopt.problem.reading import first_call
from autoopt.registry import DescribeReply
from autoopt.target import Accelerator
from autoopt.workers import CallResult, Gate, gated_call, reading_call, repeated_call

TERMS = CallTerms(subject=Subject.model("model"), limit=60.0, phase="passes")


@dataclass
class FakeHost(Host):
    """Answers every call with the same result."""

    result: CallResult = field(default_factory=lambda: CallResult(Outcome.OK, {}))
    steps: tuple[StepReply, ...] = ()
    name: str = "fake"
    limits: list[CallLimits] = field(default_factory=list)

    def run_pass(self, request: PassRequest, limits: CallLimits) -> HostReply[PassReply]:
        self.limits.append(limits)
        return HostReply(self.result, PassReply(self.steps))

    def evaluate_model(self, meter: object, request: MeasureRequest, limits: CallLimits) -> HostReply[MeasureReply]:
        self.limits.append(limits)
        return HostReply(self.result, MeasureReply())

    def runtime(self) -> CallResult:
        return self.result

    def passes(self, accelerator: Accelerator) -> HostReply[DescribeReply]:
        return HostReply(self.result, DescribeReply(()))

    def close(self) -> None:
        """There is nothing to close."""


class RecordingGate(Gate):
    def __init__(self) -> None:
        self.entries: list[tuple[str, float]] = []

    @contextmanager
    def working(self, until: float = float("inf")) -> Iterator[None]:
        self.entries.append(("working", until))
        yield

    @contextmanager
    def measuring(self, until: float = float("inf")) -> Iterator[Any]:
        self.entries.append(("measuring", until))
        yield SimpleNamespace(passed_over=False)


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


def request(tmp_path: Path) -> PassRequest:
    return PassRequest(ModelFile(str(tmp_path / "m.onnx")), (PassStep("name_fix"),), tmp_path / "output")


def call(simulation: Simulation, host: Host, terms: CallTerms = TERMS, **attempt: object) -> HostReply[PassReply]:
    return run_pass(simulation.context(**attempt), host, request(simulation.folder), terms)


def test_the_reply_of_the_host_is_returned(simulation: Simulation) -> None:
    steps = (StepReply("name_fix", Outcome.UNCHANGED),)
    answer = call(simulation, FakeHost(steps=steps))
    assert answer.reply == PassReply(steps)


def test_a_call_keeps_to_its_limits(simulation: Simulation) -> None:
    host = FakeHost()
    ctx = simulation.context()
    limits = replace(ctx.problem.limits, memory=10**9)
    run_pass(replace(ctx, problem=replace(ctx.problem, limits=limits)), host, request(simulation.folder), TERMS)
    assert host.limits == [CallLimits(60.0, 10**9)]


def test_a_call_shortly_before_the_deadline_is_shortened(simulation: Simulation) -> None:
    host = FakeHost()
    call(simulation, host, deadline=10.0)
    assert host.limits[0].seconds == 20.0


def test_a_call_cut_off_by_the_deadline_has_no_outcome(simulation: Simulation) -> None:
    host = FakeHost(result=CallResult(Outcome.TIMEOUT, message="more than 40 s"))
    with pytest.raises(TimeUp):
        call(simulation, host, deadline=10.0)


def test_a_call_beyond_its_own_limit_is_a_timeout(simulation: Simulation) -> None:
    host = FakeHost(result=CallResult(Outcome.TIMEOUT, message="more than 60 s"))
    assert call(simulation, host).result.outcome is Outcome.TIMEOUT


def measure_alone(ctx: RunContext, host: FakeHost) -> None:
    request = MeasureRequest(ModelFile("m"))
    terms = replace(TERMS, exclusive=True)
    guarded_call(ctx, host, terms, lambda limits: host.evaluate_model(METERS[0], request, limits))


def test_work_takes_the_gate_shared_and_measurements_take_it_alone(simulation: Simulation) -> None:
    gate = RecordingGate()
    ctx = replace(simulation.context(), resources=replace(simulation.resources, gate=gate))
    guarded_call(ctx, FakeHost(), TERMS, lambda limits: HostReply(CallResult(Outcome.OK, {}), None))
    measure_alone(ctx, FakeHost())
    assert [kind for kind, _ in gate.entries] == ["working", "measuring"]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CRASHED])
def test_what_failed_in_a_shared_worker_is_tried_once_in_a_fresh_one(simulation: Simulation, outcome: Outcome) -> None:
    host = FakeHost(result=CallResult(outcome, shared=True))
    assert call(simulation, host).result.outcome is outcome
    assert [limits.fresh for limits in host.limits] == [False, True]


@pytest.mark.parametrize(
    "result",
    [CallResult(Outcome.FAILED), CallResult(Outcome.REFUSED, shared=True), CallResult(Outcome.OK, {}, shared=True)],
)
def test_other_ends_are_final(simulation: Simulation, result: CallResult) -> None:
    host = FakeHost(result=result)
    call(simulation, host)
    assert len(host.limits) == 1


class OvertakenGate(RecordingGate):
    """A gate whose first measurement was suspended, so that others came in."""

    @contextmanager
    def measuring(self, until: float = float("inf")) -> Iterator[Any]:
        self.entries.append(("measuring", until))
        yield SimpleNamespace(passed_over=len(self.entries) == 1)


def test_a_measurement_that_was_suspended_is_repeated(simulation: Simulation) -> None:
    gate = OvertakenGate()
    ctx = replace(simulation.context(), resources=replace(simulation.resources, gate=gate))
    host = FakeHost()
    measure_alone(ctx, host)
    assert [kind for kind, _ in gate.entries] == ["measuring"] * 2


def test_time_is_counted_for_the_phase(simulation: Simulation) -> None:
    ctx = simulation.context()
    run_pass(ctx, FakeHost(), request(simulation.folder), TERMS)
    assert set(ctx.attempt.counts.seconds()) == {"passes", "waiting"}


def test_a_subject_that_killed_two_workers_is_quarantined(simulation: Simulation) -> None:
    host = FakeHost(result=CallResult(Outcome.CRASHED, message="the worker died", died=True))
    for _ in range(2):
        call(simulation, host)
    answer = call(simulation, host)
    assert (answer.result.outcome, answer.reply) == (Outcome.CRASHED, None)
    assert "is quarantined" in answer.result.message
    assert len(host.limits) == 2


KILLED = CallResult(Outcome.CRASHED, message="the worker died: SIGKILL", died=True, cause=Cause.MACHINE)
SET_UP = StepReply("name_fix", Outcome.FAILED, message="no permission", cause=Cause.SET_UP)
NO_MEMORY = StepReply("name_fix", Outcome.REFUSED, message="too large", cause=Cause.SET_UP)


@dataclass
class RecoveringHost(FakeHost):
    """Answers the first call with `first`, the next ones with a good result."""

    first: HostReply[PassReply] = field(default_factory=lambda: HostReply(KILLED, None))

    def run_pass(self, request: PassRequest, limits: CallLimits) -> HostReply[PassReply]:
        answer = super().run_pass(request, limits)
        assert list(request.output.iterdir()) == [], "what the first try left there"
        (request.output / "left").touch()
        return self.first if len(self.limits) == 1 else answer


@pytest.mark.parametrize(
    "first",
    [
        HostReply(KILLED, None),
        HostReply(CallResult(Outcome.TIMEOUT, message="stopped", cause=Cause.MACHINE), None),
        HostReply(CallResult(Outcome.OK, {}), PassReply((SET_UP,))),
        HostReply(CallResult(Outcome.OK, {}), PassReply((NO_MEMORY,))),
    ],
    ids=["killed", "timeout on a busy machine", "set-up", "memory"],
)
def test_what_the_machine_may_have_caused_is_tried_again_alone(
    simulation: Simulation, first: HostReply[PassReply]
) -> None:
    host = RecoveringHost(first=first, steps=(StepReply("name_fix", Outcome.UNCHANGED),))
    answer = call(simulation, host)
    assert answer.reply == PassReply(host.steps)
    assert len(host.limits) == 2


def test_a_worker_that_is_killed_from_outside_is_never_quarantined(simulation: Simulation) -> None:
    host = FakeHost(result=KILLED)
    for _ in range(4):
        assert call(simulation, host).result.cause is Cause.MACHINE
    assert len(host.limits) == 8


@pytest.mark.parametrize(
    "host",
    [
        FakeHost(
            result=CallResult(
                Outcome.FAILED, message="OSError: [Errno 28] No space left on device", cause=Cause.FULL_DISK
            )
        ),
        FakeHost(steps=(StepReply("name_fix", Outcome.FAILED, message="Disk quota exceeded", cause=Cause.FULL_DISK),)),
    ],
)
def test_a_full_disk_is_no_failure_of_the_model(simulation: Simulation, host: Host) -> None:
    with pytest.raises(SystemFailure, match=r"^(No space left on device|Disk quota exceeded); .*store gc"):
        call(simulation, host)


def test_a_first_call_is_counted_for_the_quarantine(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    deaths: list[str] = []

    def subject() -> str:
        deaths.append("asked")
        return "digest"

    def die(*_: object, **__: object) -> CallResult:
        return CallResult(Outcome.CRASHED, message="the worker died", died=True)

    monkeypatch.setattr(SimulatedPool, "call", die)
    for _ in range(2):
        first_call(simulation.resources, "a:b", {}, subject=subject, limit=1.0)
    assert "is quarantined" in first_call(simulation.resources, "a:b", {}, subject=subject, limit=1.0).message


@pytest.mark.parametrize(("call", "calls"), [(reading_call, 2), (repeated_call, 2), (gated_call, 1)])
def test_a_first_call_that_failed_beside_other_work_is_repeated_only_if_it_matters(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch, call: Callable[..., CallResult], calls: int
) -> None:
    made: list[str] = []

    def time_out(_: object, function: str, *__: object) -> CallResult:
        made.append(function)
        return CallResult(Outcome.TIMEOUT, cause=Cause.MACHINE)

    monkeypatch.setattr(SimulatedPool, "call", time_out)
    first_call(simulation.resources, "a:b", {}, subject=lambda: "digest", limit=1.0, call=call)
    assert len(made) == calls


def test_the_subject_of_a_first_call_is_not_digested_without_need(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimulatedPool, "call", lambda *_, **__: CallResult(Outcome.OK, {}))

    def subject() -> str:
        raise AssertionError("digests a large file")

    assert first_call(simulation.resources, "a:b", {}, subject=subject, limit=1.0).outcome is Outcome.OK
