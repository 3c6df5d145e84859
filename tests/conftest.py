"""What holds for all tests."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest

from autoopt.settings import settings


def pytest_configure() -> None:
    """Processes that tests start end by the usual signals, also where whoever started these tests ignores them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def gate() -> Iterator[None]:
    """A measurement gate for each process of tests: what is measured here need not be true, only be measured."""
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        os.environ["AUTOOPT_GATE"] = folder
        settings.cache_clear()
        yield
        del os.environ["AUTOOPT_GATE"]
