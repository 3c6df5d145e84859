"""Where the real models are."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.settings import settings


@pytest.fixture
def zoo() -> Path:
    folder = settings().test_zoo
    if folder is None or not folder.is_dir():
        pytest.skip("AUTOOPT_TEST_ZOO names no folder of models")
    return folder
