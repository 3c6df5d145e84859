"""Stores in every database that autoopt supports."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest

from autoopt.owner import is_known_dead
from autoopt.store import Store, open_store


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The address of an empty schema on a real server, dropped afterwards."""
    with postgres.empty_schema() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/home/autoopt.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    url = f"sqlite:///{tmp_path}/home/autoopt.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    with open_store(url, tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def database_store(url: str, tmp_path: Path) -> Iterator[Store]:
    """An empty store in each kind of database, which other processes can open too."""
    with open_store(url, tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    """For what does not depend on the database."""
    with open_store(f"sqlite:///{tmp_path}/home/autoopt.db", tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def dead_owner() -> str:
    """The owner id of a process of this machine that was killed."""
    code = "from autoopt.owner import this_process; print(this_process(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    owner = child.stdout.readline().strip()
    assert not is_known_dead(owner)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    return owner
