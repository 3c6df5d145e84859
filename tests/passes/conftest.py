"""Where the real models are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from script_passes import SCRIPT


@pytest.fixture
def zoo() -> Path:
    folder = Path(os.environ.get("AUTOOPT_TEST_ZOO", "absent")).absolute()
    if not folder.is_dir():
        pytest.skip("AUTOOPT_TEST_ZOO names no folder of models")
    return folder


@pytest.fixture
def script(tmp_path: Path) -> str:
    """The path of a user script with passes."""
    path = tmp_path / "user.py"
    path.write_text(SCRIPT)
    return str(path)
