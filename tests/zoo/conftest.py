"""Sweeps of small models with real measurements: no call bypasses the gate, and all tests share workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import mlp, write
from gated import Calls, watched


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    with watched(monkeypatch) as recorded:
        yield recorded


@pytest.fixture(autouse=True)
def shared_workers(kept_workers: None) -> None:
    """Have all tests share worker processes."""


@pytest.fixture
def mlp_file(tmp_path: Path) -> Path:
    return write(mlp(width=64), tmp_path / "mlp")
