from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoopt.workers import WorkerPool

TESTS = str(Path(__file__).parent.parent)


@pytest.fixture
def jobs() -> dict[str, str]:
    """The environment in which workers find the functions of `jobs`."""
    return {"PYTHONPATH": TESTS}


@pytest.fixture
def pool(jobs: dict[str, str]) -> Iterator[WorkerPool]:
    """Two workers that find the functions of `jobs`."""
    with WorkerPool(size=2, env=jobs) as made:
        yield made
