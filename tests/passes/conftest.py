"""Where the real models are."""

from __future__ import annotations

from pathlib import Path

import pytest
from script_passes import SCRIPT

from autoopt.settings import settings


@pytest.fixture
def zoo() -> Path:
    folder = settings().test_zoo
    if folder is None or not folder.is_dir():
        pytest.skip("AUTOOPT_TEST_ZOO names no folder of models")
    return folder


@pytest.fixture
def script(tmp_path: Path) -> str:
    """The path of a user script with passes."""
    path = tmp_path / "user.py"
    path.write_text(SCRIPT)
    return str(path)
