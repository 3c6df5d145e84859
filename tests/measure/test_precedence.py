"""Precedence over other programs while a block is timed."""

from __future__ import annotations

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

from autoopt.measure.latency import machine, meter, one_thread
from autoopt.measure.latency.machine import QUIET, Load, core_count
from autoopt.measure.latency.precedence import LONGEST, Precedence, can_have_precedence, thread_count
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.measure.two_ratios import DETAIL, TwoRatios
from autoopt.metrics import MEDIAN_LATENCY
from autoopt.model import io
from autoopt.model.model_file import ModelFile
from autoopt.model.session import make_session
from autoopt.target import Target

allowed = pytest.mark.skipif(not can_have_precedence(), reason="needs real-time priority")


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
    precedence = Precedence(active=True)
    session = make_session(request_of_two.candidate.path, threads=3)
    with python_thread() as own:
        precedence.include_helpers()
        assert policies() == Counter({os.SCHED_OTHER: threading.active_count(), os.SCHED_FIFO: helper_count()})
        assert os.sched_getscheduler(own) == os.SCHED_OTHER
    with precedence.of_this_thread():
        assert os.sched_getscheduler(0) == os.SCHED_FIFO
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    precedence.end_if_long(LONGEST)
    assert precedence.active
    precedence.end_if_long(2 * LONGEST)
    assert not precedence.active
    assert set(policies()) == {os.SCHED_OTHER}
    del session


@allowed
@pytest.mark.skipif(core_count() < 2, reason="one core")
def test_the_calling_thread_leaves_the_cores_of_bound_threads(request_of_two: MeasureRequest) -> None:
    cores = os.sched_getaffinity(0)
    session = make_session(request_of_two.candidate.path, threads=2)
    own = {thread.native_id for thread in threading.enumerate()}
    helpers = {int(name) for name in os.listdir("/proc/self/task")} - own
    precedence = Precedence(active=True)
    with precedence.until_the_end():
        for helper in helpers:
            os.sched_setaffinity(helper, {max(cores)})
        precedence.include_helpers()
        with precedence.of_this_thread():
            assert os.sched_getaffinity(0) == cores - {max(cores)}
        assert os.sched_getaffinity(0) == cores
    for helper in helpers:  # of which some are not the session's
        os.sched_setaffinity(helper, cores)
    del session


@allowed
def test_a_fork_keeps_its_main_thread_out() -> None:
    child = os.fork()
    if child == 0:
        Precedence(active=True).include_helpers()
        os._exit(os.sched_getscheduler(0))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == os.SCHED_OTHER


@allowed
def test_it_ends_with_an_error() -> None:
    with pytest.raises(KeyError), Precedence(active=True).of_this_thread():
        raise KeyError
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@allowed
def test_a_process_that_was_made_polite_has_none() -> None:
    question = "from autoopt.measure.latency.precedence import can_have_precedence as can; print(can())"
    command = [sys.executable, "-c", f"import os; os.nice(1); {question}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_without_it_nothing_changes() -> None:
    precedence = Precedence()
    precedence.include_helpers()
    with precedence.of_this_thread():
        assert set(policies()) == {os.SCHED_OTHER}
    load = Load(2.0, runnable=9.0)
    assert precedence.load_beside(load) == load


@pytest.mark.skipif(not can_have_precedence(), reason="needs real-time priority")
@pytest.mark.parametrize(
    ("changes", "busy", "active"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"target": Target(threads=1)}, True, False),
        ({"settings": MeasurementSettings(precedence=False)}, True, False),
    ],
)
def test_several_threads_have_it_on_a_busy_machine(
    request_of_two: MeasureRequest, changes: dict[str, object], busy: bool, active: bool
) -> None:
    assert Precedence.of(replace(request_of_two, **changes), busy=busy).active == active


def test_models_on_all_cores_see_nothing_of_other_programs() -> None:
    load = Load(1.5, runnable=9.0)
    everything = Precedence(active=True, threads=core_count())
    assert not everything.load_beside(load).busy
    assert everything.load_beside(load).contention == QUIET.contention
    assert everything.load_beside(load).gave_way
    assert not everything.load_beside(QUIET).gave_way
    fewer = Precedence(active=True, threads=0).load_beside(load)
    assert not fewer.busy
    assert 0 < fewer.contention <= load.contention


def test_threads_are_those_of_the_model_then_of_the_target_then_the_cores(request_of_two: MeasureRequest) -> None:
    assert thread_count(request_of_two, ModelFile("a.onnx", {"intra_op_num_threads": 3})) == 3
    assert thread_count(request_of_two, request_of_two.source) == 2
    assert thread_count(replace(request_of_two, target=Target(threads=0)), None) == core_count()


@allowed
def test_a_model_that_went_first_may_be_as_fast_as_with_free_cores_or_on_one_thread(
    request_of_two: MeasureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.Load, "between", lambda before, after: Load(2.0, runnable=8.0))
    monkeypatch.setattr(one_thread, "wakes_helpers", lambda *_: True)
    reply = meter.measure(request_of_two)
    both, ratio = TwoRatios.of(reply.details), reply.ratios[MEDIAN_LATENCY]
    assert both is not None
    assert both.has_free_cores
    assert ratio.low < min(both.by_clock.value, both.on_one_thread.value)
    assert ratio.high > max(both.by_clock.value, both.on_one_thread.value)
    monkeypatch.setattr(one_thread, "wakes_helpers", lambda *_: False)
    assert DETAIL not in meter.measure(request_of_two).details
    assert reply.details["busy"] is False
    assert reply.details["machine"]["precedence"] is True  # type: ignore[index,call-overload]  # JSON
    assert reply.details["machine"]["others_load"] == 2.0  # type: ignore[index,call-overload]  # JSON
    settings = replace(request_of_two.settings, precedence=False)
    reply = meter.measure(replace(request_of_two, settings=settings))
    assert DETAIL in reply.details
    assert reply.details["busy"] is True
