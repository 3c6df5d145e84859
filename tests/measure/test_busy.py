"""Measures against other programs: precedence while a block is timed, and ratios on one thread."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import builders
import pytest

from autoopt.json_codec import JsonObject
from autoopt.measure.latency import busy, meter, timing
from autoopt.measure.latency.busy import (
    Load,
    OtherPrograms,
    QuietWait,
    Reading,
    can_go_first,
    core_count,
    thread_count,
)
from autoopt.measure.latency.estimate import after_a_look, both_ratios
from autoopt.measure.latency.prepare import prepare
from autoopt.measure.latency.timing import is_serial, needs_one_thread
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.measure.two_ratios import DETAIL, TwoRatios
from autoopt.metrics import MEDIAN_LATENCY, Estimate
from autoopt.model import io
from autoopt.model.model_file import ModelFile
from autoopt.model.session import make_session
from autoopt.target import Target
from autoopt.tuning import TIMING

allowed = pytest.mark.skipif(not can_go_first(), reason="needs real-time priority")


@contextmanager
def python_thread() -> Iterator[int]:
    """A thread of Python's that waits; its number."""
    started, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (started.set(), end.wait()))
    thread.start()
    started.wait()
    assert thread.native_id is not None
    yield thread.native_id
    end.set()
    thread.join()


def policies() -> Counter[int]:
    """Scheduling policies of the threads of this process, with their numbers."""
    return Counter(os.sched_getscheduler(int(name)) for name in os.listdir("/proc/self/task"))


def helper_count() -> int:
    """Threads of this process that Python has not started: at least the two of a session on three threads."""
    count = len(os.listdir("/proc/self/task")) - threading.active_count()
    assert count >= 2
    return count


@pytest.fixture
def request_of_two(tmp_path: Path) -> MeasureRequest:
    files = [str(io.save(builders.mlp(seed=seed), tmp_path / f"model{seed}")) for seed in range(2)]
    settings = MeasurementSettings(seconds=0.2, quiet_seconds=0.01, replicas=2)
    metrics, target = (MEDIAN_LATENCY,), Target(threads=2)
    return MeasureRequest(ModelFile(files[1]), ModelFile(files[0]), metrics=metrics, target=target, settings=settings)


@allowed
def test_the_calling_thread_and_those_of_the_runtime_have_it_while_it_lasts(request_of_two: MeasureRequest) -> None:
    others = OtherPrograms(give_way=True)
    session = make_session(request_of_two.candidate.path, threads=3)
    with python_thread() as own:
        others.include_helpers()
        assert policies() == Counter({os.SCHED_OTHER: threading.active_count(), os.SCHED_FIFO: helper_count()})
        assert os.sched_getscheduler(own) == os.SCHED_OTHER
    with others.behind_this_thread():
        assert os.sched_getscheduler(0) == os.SCHED_FIFO
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    others.keep_if_long(TIMING.longest_with_precedence)
    assert others.give_way
    others.keep_if_long(2 * TIMING.longest_with_precedence)
    assert not others.give_way
    assert set(policies()) == {os.SCHED_OTHER}
    del session


@allowed
@pytest.mark.skipif(core_count() < 2, reason="one core")
def test_the_calling_thread_leaves_the_cores_of_bound_threads(request_of_two: MeasureRequest) -> None:
    cores = os.sched_getaffinity(0)
    session = make_session(request_of_two.candidate.path, threads=2)
    own = {thread.native_id for thread in threading.enumerate()}
    helpers = {int(name) for name in os.listdir("/proc/self/task")} - own
    others = OtherPrograms(give_way=True)
    with others.noted():
        for helper in helpers:
            os.sched_setaffinity(helper, {max(cores)})
        others.include_helpers()
        with others.behind_this_thread():
            assert os.sched_getaffinity(0) == cores - {max(cores)}
        assert os.sched_getaffinity(0) == cores
    for helper in helpers:  # of which some are not the session's
        os.sched_setaffinity(helper, cores)
    del session


@allowed
def test_a_fork_keeps_its_main_thread_out() -> None:
    child = os.fork()
    if child == 0:
        OtherPrograms(give_way=True).include_helpers()
        os._exit(os.sched_getscheduler(0))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == os.SCHED_OTHER


@allowed
def test_it_ends_with_an_error() -> None:
    with pytest.raises(KeyError), OtherPrograms(give_way=True).behind_this_thread():
        raise KeyError
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@allowed
def test_a_process_that_was_made_polite_has_none() -> None:
    question = "from autoopt.measure.latency.busy import can_go_first as can; print(can())"
    command = [sys.executable, "-c", f"import os; os.nice(1); {question}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_without_it_nothing_changes() -> None:
    others = OtherPrograms()
    others.include_helpers()
    with others.behind_this_thread():
        assert set(policies()) == {os.SCHED_OTHER}
    load = Load(2.0, runnable=9.0)
    assert others.beside_models(load) == load


@allowed
@pytest.mark.parametrize(
    ("changes", "is_busy", "active"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"target": Target(threads=1)}, True, False),
        ({"settings": MeasurementSettings(precedence=False)}, True, False),
    ],
)
def test_several_threads_have_it_on_a_busy_machine(
    request_of_two: MeasureRequest,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, object],
    is_busy: bool,
    active: bool,
) -> None:
    monkeypatch.setattr(busy, "_QUIET_WAIT", QuietWait(is_quiet=not is_busy, known_until=float("inf")))
    assert OtherPrograms.of(replace(request_of_two, **changes)).give_way == active


def test_models_on_all_cores_see_nothing_of_other_programs() -> None:
    load = Load(1.5, runnable=9.0)
    everything = OtherPrograms(give_way=True, threads=core_count())
    assert not everything.beside_models(load).busy
    assert everything.beside_models(load).contention == Load(0.0).contention
    assert everything.beside_models(load).gave_way
    assert not everything.beside_models(Load(0.0)).gave_way
    fewer = OtherPrograms(give_way=True, threads=0).beside_models(load)
    assert not fewer.busy
    assert 0 < fewer.contention <= load.contention


@allowed
def test_a_model_that_went_first_may_be_as_fast_as_with_free_cores_or_on_one_thread(
    request_of_two: MeasureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Load, "between", lambda before, after: Load(2.0, runnable=8.0))
    monkeypatch.setattr(timing, "is_serial", lambda *_: False)
    reply = meter.measure(request_of_two)
    both, ratio = TwoRatios.of(reply.details), reply.ratios[MEDIAN_LATENCY]
    assert both is not None
    assert both.has_free_cores
    assert ratio.low < min(both.by_clock.value, both.on_one_thread.value)
    assert ratio.high > max(both.by_clock.value, both.on_one_thread.value)
    monkeypatch.setattr(timing, "is_serial", lambda *_: True)
    assert DETAIL not in meter.measure(request_of_two).details
    assert reply.details["busy"] is False
    assert reply.details["machine"]["precedence"] is True  # type: ignore[index,call-overload]  # JSON
    assert reply.details["machine"]["others_load"] == 2.0  # type: ignore[index,call-overload]  # JSON
    settings = replace(request_of_two.settings, precedence=False)
    reply = meter.measure(replace(request_of_two, settings=settings))
    assert DETAIL in reply.details
    assert reply.details["busy"] is True


QUIET, BUSY = Load(0.0), Load(cores=2.0)
NARROW, WIDE = Estimate(0.9, 0.89, 0.91), Estimate(0.9, 0.6, 1.3)
ON_ONE = {"intra_op_num_threads": 1}


def on_threads(threads: int, **options: int) -> MeasureRequest:
    """A request on so many threads, whose candidate has these options."""
    settings = MeasurementSettings(target_width=0.01)
    source = ModelFile("s", {"enable_mem_pattern": False})
    return MeasureRequest(ModelFile("c", options), source, target=Target(threads=threads), settings=settings)


@pytest.mark.parametrize(
    ("request_", "by_clock", "stopped", "load", "expected"),
    [
        (on_threads(2), WIDE, "time", QUIET, True),
        (on_threads(2), NARROW, "time", QUIET, False),
        (on_threads(2), None, "time", QUIET, False),
        (on_threads(2), WIDE, "worse", QUIET, False),
        (on_threads(2), WIDE, "hopeless", QUIET, False),
        (on_threads(2, **ON_ONE), WIDE, "time", QUIET, False),
        # No ratio by the clock is certain beside other programs.
        (on_threads(2), NARROW, "time", BUSY, True),
        (on_threads(2), NARROW, "worse", BUSY, True),
        (on_threads(2), NARROW, "time", Load(0.0, gave_way=True), True),
        # They do not make up for what is hopeless with as many threads.
        (on_threads(2), NARROW, "hopeless", BUSY, False),
        (on_threads(2, **ON_ONE), NARROW, "hopeless", BUSY, True),
        (on_threads(1), WIDE, "time", BUSY, False),
    ],
)
def test_one_thread_tells_more_where_the_clock_is_uncertain(
    request_: MeasureRequest, by_clock: Estimate | None, stopped: str, load: Load, expected: bool
) -> None:
    assert needs_one_thread(request_, request_.candidate, by_clock, stopped=stopped, load=load) is expected


@pytest.mark.parametrize("serial", [False, True])
def test_models_that_wake_no_helpers_keep_their_options_on_one_thread(
    request_of_two: MeasureRequest, monkeypatch: pytest.MonkeyPatch, serial: bool
) -> None:
    monkeypatch.setattr(Load, "between", lambda before, after: BUSY)
    monkeypatch.setattr(timing, "is_serial", lambda *_: serial)
    settings = replace(request_of_two.settings, precedence=False)
    times = timing.time_models(prepare(replace(request_of_two, settings=settings)), one_thread=True)
    [on_one_thread] = times.calls[0].one_thread
    assert on_one_thread is not None
    assert on_one_thread.is_serial is serial
    ratio = on_one_thread.comparison.estimate()
    assert 0.01 < ratio.low <= ratio.value <= ratio.high < 100


@pytest.mark.parametrize(("width", "expected"), [(16, True), (1 << 16, False)])
def test_only_large_operators_wake_helper_threads(tmp_path: Path, width: int, *, expected: bool) -> None:
    model = ModelFile(str(io.save(builders.mlp(width), tmp_path / "model")))
    request = MeasureRequest(candidate=model, metrics=(MEDIAN_LATENCY,), target=Target(threads=2))
    subject_of = prepare(request).calls[0].subject_of
    timed = subject_of(model)
    replica = timed.add_replica(1e6)
    replica.warm = replace(replica.warm, time=1e5)
    assert is_serial(subject_of, model, timed) is expected
    replica.warm = replace(replica.warm, time=1e7)
    assert not is_serial(subject_of, model, timed)


@pytest.mark.parametrize(("load", "error"), [(BUSY, TIMING.look_disturbance), (QUIET, 0.0)])
def test_the_ratio_of_a_hopeless_candidate_shows_what_other_programs_add(load: Load, error: float) -> None:
    by_clock = Estimate(2.0, 1.9, 2.1)
    changed = after_a_look(on_threads(2), by_clock, stopped="hopeless", load=load)
    assert changed.log_deviation == pytest.approx(math.hypot(by_clock.log_deviation, error), rel=1e-3)
    assert changed.value == 2.0
    assert after_a_look(on_threads(2), by_clock, stopped="time", load=load) == by_clock


def test_without_a_load_the_clock_is_as_certain_as_its_interval_says() -> None:
    by_clock, on_one_thread = Estimate(0.8, 0.4, 1.6), Estimate(0.6, 0.59, 0.61)
    for load, disturbance in ((QUIET, 0.0), (BUSY, TIMING.disturbance)):
        both = both_ratios(on_threads(2), by_clock, on_one_thread, is_serial=False, load=load)
        assert (both.by_clock, both.on_one_thread, both.disturbance) == (by_clock, on_one_thread, disturbance)


@pytest.mark.parametrize("options", [{}, ON_ONE])
def test_a_small_gain_of_serial_models_is_certain_beside_other_programs(options: JsonObject) -> None:
    by_clock, on_one_thread = Estimate(0.95, 0.9, 1.01), Estimate(0.93, 0.91, 0.95)
    ratio = both_ratios(on_threads(2, **options), by_clock, on_one_thread, is_serial=True, load=BUSY).combined()
    assert 0.9 < ratio.low < 0.935 < ratio.high < 0.97


def test_the_load_of_others_is_all_work_less_our_own() -> None:
    load = Load.between(Reading(10.0, 100.0, 5.0, runnable=3), Reading(12.0, 105.0, 6.0, runnable=6))
    assert load.cores == pytest.approx(2.0)
    assert load.runnable == pytest.approx(3.5)
    assert load.busy


def test_a_load_that_cannot_be_measured_is_unknown() -> None:
    unknown = Reading(0.0, -1.0, 0.0)
    assert Load.between(unknown, Reading(9.0, 3.0, 0.0)).cores is None
    assert Load.between(Reading(0.0, 0.0, 0.0), Reading(0.01, 0.0, 0.0)).cores is None


def test_work_on_other_cores_shares_only_caches() -> None:
    before, after = Reading(0.0, 0.0, 0.0), Reading(1.0, 0.9, 0.9, runnable=3, elsewhere=1.0)
    load = Load.between(before, after)
    assert (load.cores, load.elsewhere, load.busy) == (pytest.approx(0.0), pytest.approx(1.0), False)
    assert 0 < load.contention <= Load(1.0, runnable=load.runnable).contention


def test_only_a_busy_machine_has_contention() -> None:
    assert Load(TIMING.busy_load, runnable=9.0).contention == 0
    assert Load(None, runnable=9.0).contention == 0
    assert 0 < Load(2.0, runnable=2.0).contention < Load(2.0, runnable=9.0).contention


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Loads that the next samples find, on a clock that moves a second with each reading."""
    loads: list[float | None] = []
    clock = iter(range(1000))
    monkeypatch.setattr(busy.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(busy.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(Load, "between", lambda before, after: Load(loads.pop(0)))
    return loads


def test_waiting_ends_when_the_machine_is_quiet(load: list[float | None]) -> None:
    load += [3.0, 1.0, TIMING.busy_load, 9.0]
    assert QuietWait().wait(1000.0)["quiet"] is True
    assert load == [9.0]


def test_waiting_ends_at_its_limit(load: list[float | None]) -> None:
    load += [3.0] * 50
    result = QuietWait().wait(6.0)
    assert result["quiet"] is False
    assert len(load) > 40


def test_waits_become_shorter_on_a_machine_that_is_always_busy(load: list[float | None]) -> None:
    load += [3.0] * 50
    wait = QuietWait()
    seconds = [wait.wait(16.0)["waited"] for _ in range(5)]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[4] < seconds[0] / 4
    load[:] = [TIMING.busy_load]
    assert wait.wait(16.0)["quiet"] is True
    assert wait.in_vain == 0


def test_a_machine_that_was_quiet_a_moment_ago_is_not_looked_at_again(load: list[float | None]) -> None:
    wait = QuietWait()
    wait.note(Load(0.0))
    assert wait.wait(6.0) == {"waited": 0.0, "quiet": True}
    wait.note(Load(3.0))
    load += [3.0, 0.0]
    assert wait.wait(6.0)["waited"] > 0
    assert load == []
    wait.note(Load(None))
    load += [0.0]
    assert wait.wait(6.0)["waited"] > 0


def test_a_machine_that_stayed_busy_after_a_wait_in_vain_is_not_looked_at_again(load: list[float | None]) -> None:
    wait = QuietWait()
    load += [3.0] * 50
    wait.wait(6.0)
    wait.note(Load(3.0))
    assert wait.wait(6.0) == {"waited": 0.0, "quiet": False}
    wait.note(Load(0.0))
    assert wait.wait(6.0) == {"waited": 0.0, "quiet": True}


def test_threads_are_those_of_the_model_then_of_the_target_then_the_cores() -> None:
    model = ModelFile("a.onnx", {"intra_op_num_threads": 3})
    request = MeasureRequest(model, ModelFile("b.onnx"), target=Target(threads=2))
    assert (thread_count(request, model), thread_count(request, request.source)) == (3, 2)
    assert thread_count(MeasureRequest(model, target=Target(threads=0)), None) == core_count()
