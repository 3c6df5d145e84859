"""Workers that all tests of problems share, and simulated ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulation import ReadingPool, Simulation


@pytest.fixture(autouse=True)
def shared_workers(kept_workers: None) -> None:
    """Have all tests share worker processes."""


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ReadingPool:
    pool = ReadingPool()
    monkeypatch.setattr("simulation.SimulatedPool", lambda: pool)
    return pool


@pytest.fixture
def simulation(tmp_path: Path, pool: ReadingPool) -> Simulation:
    return Simulation(tmp_path)
