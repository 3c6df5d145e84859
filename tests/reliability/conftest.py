"""Commands in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from outside import Command, Place, Said

from autoopt.cli.app import main
from autoopt.settings import settings


@pytest.fixture
def command(
    kept_workers: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Return `command(folder, "runs", "--json")`, which runs a command in this process.

    The command's working folder is `folder`, its home that of `Place`. Workers serve one command after the other.
    """
    monkeypatch.delenv("AUTOOPT_DB_URL", raising=False)

    def run(folder: Path, *arguments: str) -> Said:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("AUTOOPT_HOME", str(Place(folder).home))
        settings.cache_clear()
        capfd.readouterr()
        code = main(arguments)
        return Said(code, *capfd.readouterr())

    yield run
    settings.cache_clear()
