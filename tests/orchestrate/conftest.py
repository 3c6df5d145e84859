"""A store for tests of single modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoopt.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with open_store(None, tmp_path) as opened:
        yield opened
