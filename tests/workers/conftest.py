from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from call_clock import CallClock

from autoopt.workers import WorkerPool, process
from autoopt.workers.fork_server import end_servers

TESTS = str(Path(__file__).parent.parent)


@pytest.fixture
def jobs() -> dict[str, str]:
    """The environment in which workers find the functions of `jobs`."""
    return {"PYTHONPATH": TESTS}


@pytest.fixture
def call_clock(monkeypatch: pytest.MonkeyPatch) -> CallClock:
    """The clock of the time limits of calls."""
    clock = CallClock()
    monkeypatch.setattr(process, "time", clock)
    return clock


@pytest.fixture
def pool(jobs: dict[str, str]) -> Iterator[WorkerPool]:
    """Two workers that find the functions of `jobs`."""
    with WorkerPool(size=2, env=jobs) as made:
        yield made


@pytest.fixture
def new_pool(jobs: dict[str, str]) -> Iterator[WorkerPool]:
    """A pool whose workers start with nothing imported, whatever other tests have had their fork server import."""
    end_servers()
    with WorkerPool(size=1, env=jobs) as made:
        yield made
