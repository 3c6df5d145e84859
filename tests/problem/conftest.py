"""Workers that all tests of problems share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def shared_workers(kept_workers: None) -> None:
    """Have all tests share worker processes."""
