"""The gate of a run whose passes continue while it measures. Locks are per open file: other objects are others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from children import HANG_SECONDS

from autoopt.errors import TimeUp
from autoopt.workers.gate import Gate
from autoopt.workers.shared_gate import SharedGate


@pytest.fixture
def shared(tmp_path: Path) -> SharedGate:
    return SharedGate(tmp_path)


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


def test_own_work_goes_on_while_it_measures(shared: SharedGate) -> None:
    with inside(shared.working), shared.measuring(time.monotonic() + HANG_SECONDS) as passage:
        assert enters(shared.working)
        assert not passage.passed_over


def test_others_neither_work_nor_measure_meanwhile(shared: SharedGate, others: Gate) -> None:
    with inside(shared.working), inside(shared.measuring):
        assert is_closed(others.working)
        assert is_closed(others.measuring)


def test_one_measurement_at_a_time(shared: SharedGate) -> None:
    with inside(shared.measuring):
        assert is_closed(shared.measuring)
    assert enters(shared.measuring)


def test_work_that_outlasts_a_measurement_keeps_others_from_measuring(shared: SharedGate, others: Gate) -> None:
    with ExitStack() as work:
        with inside(shared.measuring):
            work.enter_context(inside(shared.working))
        assert enters(others.working)
        assert is_closed(others.measuring)
    assert enters(others.measuring)


def test_a_measurement_waits_for_the_work_of_others(shared: SharedGate, others: Gate) -> None:
    with inside(shared.working):
        with inside(others.working):
            assert is_closed(shared.measuring)
        assert is_closed(others.measuring), "own work is locked again"
    assert enters(shared.measuring)


def test_work_waits_for_a_measurement_of_others(shared: SharedGate, others: Gate) -> None:
    with inside(others.measuring):
        assert is_closed(shared.working)
    assert enters(shared.working)
