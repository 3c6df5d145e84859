"""A user's folder for each test, in which nothing may be left running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from outside import Place, filled


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A folder with `model.onnx` and `dag.yaml`, whose commands leave no process and no temporary file."""
    place = filled(tmp_path / "user")
    yield place
    place.nothing_left()
