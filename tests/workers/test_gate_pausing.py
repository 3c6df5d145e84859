"""The gate of a run that pauses its own passes while it measures."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from children import HANG_SECONDS

from autoopt.errors import TimeUp
from autoopt.outcome import Outcome
from autoopt.workers import CallResult, Gate, WorkerPool, process
from autoopt.workers.lock_files import is_suspended


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.fixture
def others(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def enters(passage: Callable[[float], object], *, patience: float = HANG_SECONDS) -> bool:
    """True if a thread comes in within `patience` seconds; it leaves again."""

    def enter() -> bool:
        try:
            with passage(time.monotonic() + patience):  # type: ignore[attr-defined]
                return True
        except TimeUp:
            return False

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(enter).result(HANG_SECONDS)


def is_closed(passage: Callable[[float], object]) -> bool:
    """True if no thread comes in at once.

    A thread that gives up leaves its place in the queue only when the lock comes to it. Who enters next needs patience.
    """
    return not enters(passage, patience=0.0)


@contextmanager
def inside(passage: Callable[[], object]) -> Iterator[None]:
    """Have a thread inside meanwhile."""
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with passage():  # type: ignore[attr-defined]
            entered.set()
            leave.wait(HANG_SECONDS)

    with ThreadPoolExecutor(1) as threads:
        stayed = threads.submit(stay)
        try:
            assert entered.wait(HANG_SECONDS)
            yield
        finally:
            leave.set()
            stayed.result(HANG_SECONDS)


class Work:
    """A call under way inside the gate, which ends when the test says so."""

    def __init__(self, pool: WorkerPool, file: Path) -> None:
        os.mkfifo(file)
        who = pool.call("jobs:who", {}).value
        assert who is not None
        self.pid: int = who["pid"]
        self._pool, self._file = pool, file

    @contextmanager
    def under_way(
        self, gate: Gate, seconds: float = HANG_SECONDS, until: float = math.inf
    ) -> Iterator[Future[CallResult]]:
        def work() -> CallResult:
            with gate.working():
                return self._pool.call("jobs:wait_for_file", {"gate": str(self._file)}, seconds, until=until)

        with ThreadPoolExecutor(1) as threads:
            result = threads.submit(work)
            pipe = os.open(self._file, os.O_WRONLY)  # opens once the worker is in its call
            try:
                yield result
                with suppress(BrokenPipeError):  # the call was ended
                    os.write(pipe, b"done")
            finally:
                os.close(pipe)


def becomes_suspended(pid: int) -> bool:
    """True once the signal has reached the process."""
    until = soon()
    while not is_suspended(pid) and time.monotonic() < until:
        os.sched_yield()
    return is_suspended(pid)


def soon(seconds: float = HANG_SECONDS) -> float:
    return time.monotonic() + seconds


def test_own_work_stops_while_it_measures_and_then_goes_on(gate: Gate, pool: WorkerPool, tmp_path: Path) -> None:
    work = Work(pool, tmp_path / "fifo")
    with work.under_way(gate) as result:
        with gate.measuring(soon()) as passage:
            assert becomes_suspended(work.pid)
            measured = pool.call("jobs:who", {}).value
            assert measured is not None
            assert measured["pid"] != work.pid
            assert not passage.passed_over
        assert not is_suspended(work.pid)
    assert result.result(HANG_SECONDS).value == {"read": "done"}


def test_nobody_works_or_measures_meanwhile(gate: Gate, others: Gate, pool: WorkerPool, tmp_path: Path) -> None:
    with Work(pool, tmp_path / "fifo").under_way(gate):
        with inside(gate.measuring):
            assert is_closed(gate.working)
            assert is_closed(others.working)
            assert is_closed(others.measuring)
        assert enters(others.working)
        assert is_closed(others.measuring)  # the work is inside again
    assert enters(others.measuring)


def test_work_outside_of_workers_is_waited_for(gate: Gate) -> None:
    with inside(gate.working), pytest.raises(TimeUp), gate.measuring(soon(0.0)):
        raise AssertionError("the gate was open")
    assert enters(gate.measuring)


def test_work_is_waited_for_where_no_other_worker_is_free(gate: Gate, jobs: dict[str, str], tmp_path: Path) -> None:
    with WorkerPool(size=1, env=jobs) as pool:
        work = Work(pool, tmp_path / "fifo")
        with work.under_way(gate):
            assert is_closed(gate.measuring)
            assert not is_suspended(work.pid)


def test_a_pause_does_not_count_as_time_of_the_call(
    gate: Gate, pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    work = Work(pool, tmp_path / "fifo")
    ticks = threading.Semaphore(0)

    class Clock:
        def monotonic(self) -> float:
            ticks.release()
            return now[0]

    with work.under_way(gate, seconds=60.0) as result:
        monkeypatch.setattr(process, "time", Clock())
        with gate.measuring(soon()):
            now[0] = 1000.0
            for _ in range(4):
                assert ticks.acquire(timeout=HANG_SECONDS)  # its time limit is checked
            assert not result.done()
    assert result.result(HANG_SECONDS).value == {"read": "done"}


def test_a_call_ends_with_the_time_of_the_run_even_if_it_was_paused(
    gate: Gate, pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    class Clock:
        def monotonic(self) -> float:
            return now[0]

    work = Work(pool, tmp_path / "fifo")
    monkeypatch.setattr(process, "time", Clock())
    with work.under_way(gate, seconds=60.0, until=100.0) as result, gate.measuring(soon()):
        now[0] = 1000.0
        assert result.result(HANG_SECONDS).outcome is Outcome.TIMEOUT
