"""A user's folder for each test, in which nothing may be left running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from outside import DAG, Place, write_model


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A folder with `model.onnx` and `dag.yaml`, whose commands leave no process and no temporary file."""
    place = Place(tmp_path / "user")
    write_model(place / "model.onnx")
    place.write("dag.yaml", DAG)
    yield place
    place.nothing_left()
