"""Seeing that work goes through the measurement gate."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write
from children import HANG_SECONDS

from autoopt.problem.hosts import RUNTIME
from autoopt.problem.reading import ADMIT, DESCRIBE_DATA, INSPECT, LOAD, LOCATE, NAME_DATA
from autoopt.registry import DESCRIBE
from autoopt.workers import WorkerPool
from autoopt.workers.gate import machine_folder

Calls = list[tuple[str, bool]]
"""Worker functions as they were called, and whether anybody was inside the gate then."""
READINGS = (ADMIT, INSPECT, LOAD, NAME_DATA, LOCATE, RUNTIME, DESCRIBE_DATA, DESCRIBE)
"""Worker functions that only read, and wait for nobody."""


def somebody_inside() -> bool:
    """Whether anybody, in whatever process, works or measures."""
    file = machine_folder() / "autoopt-gate.lock"
    if not file.exists():
        return False
    probe = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(probe)
    return False


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """The calls into workers of this process, within; at the end, none but readings went past the gate."""
    calls: Calls = []
    call = WorkerPool.call

    def seen(self: WorkerPool, function: str, *arguments: Any, **named: Any) -> Any:
        calls.append((function, somebody_inside()))
        return call(self, function, *arguments, **named)

    monkeypatch.setattr(WorkerPool, "call", seen)
    yield calls
    assert [function for function, inside in calls if not inside and function not in READINGS] == []


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "never happened"
        os.sched_yield()


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Check that no call into a worker bypasses the measurement gate; return the calls."""
    with watched(monkeypatch) as recorded:
        yield recorded


@pytest.fixture(autouse=True)
def shared_workers(kept_workers: None) -> None:
    """Have all tests share worker processes."""


@pytest.fixture
def mlp_file(tmp_path: Path) -> Path:
    return write(mlp(width=64), tmp_path / "mlp")
