"""What holds for all tests."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest

from autoopt.settings import settings


def pytest_configure() -> None:
    """Processes that tests start end by an interrupt, also where these tests run in a shell's background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def gate() -> Iterator[None]:
    """A measurement gate for each process of tests: what is measured here need not be true, only be measured."""
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        os.environ["AUTOOPT_GATE"] = folder
        settings.cache_clear()
        yield
        del os.environ["AUTOOPT_GATE"]
