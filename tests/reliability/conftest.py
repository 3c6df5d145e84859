"""Servers that tests share, and commands in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Command, Prefect, Said, environment
from ports import free_port
from prefect_server import prepared, running_server

from autoopt.cli.app import main
from autoopt.settings import settings


@pytest.fixture(scope="module")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefect]:
    """A Prefect server of these tests' own."""
    folder = tmp_path_factory.mktemp("server")
    env = environment(folder)
    prepared(Path(env["PREFECT_HOME"]))
    with running_server(env, free_port(), folder / "said.txt") as url:
        yield Prefect(url, folder)


@pytest.fixture
def command(
    kept_workers: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Return `command(folder, "runs", "--json")`, which runs a command in this process.

    The command's working folder is `folder`, its home `folder/home`. Workers serve one command after the other.
    """
    monkeypatch.delenv("AUTOOPT_DB_URL", raising=False)

    def run(folder: Path, *arguments: str) -> Said:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("AUTOOPT_HOME", str(folder / "home"))
        settings.cache_clear()
        capfd.readouterr()
        code = main(arguments)
        return Said(code, *capfd.readouterr())

    yield run
    settings.cache_clear()
