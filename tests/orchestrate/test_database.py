"""Prefect's database: named ones, PostgreSQL where it can be started, SQLite with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres import Server

from autoopt.errors import InputError, SystemFailure
from autoopt.orchestrate.server import database, postgres
from autoopt.orchestrate.server.database import CONNECTION_URL, FORMER_CONNECTION_URL, choose_database


@pytest.fixture(autouse=True)
def no_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without PostgreSQL, and an environment that names no database."""
    for name in (CONNECTION_URL, FORMER_CONNECTION_URL, "PREFECT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(postgres, "_programs", lambda version: None)


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("postgresql://me:canary@db/prefect", "postgresql+asyncpg://me:canary@db/prefect"),
        ("postgres://db/prefect", "postgresql+asyncpg://db/prefect"),
        ("postgresql+psycopg://db/prefect", "postgresql+asyncpg://db/prefect"),
    ],
)
def test_a_named_database_is_used_with_the_driver_that_prefect_needs(
    url: str, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = choose_database(tmp_path, url)
    assert chosen.url == used
    assert "canary" not in chosen.description
    for name in (CONNECTION_URL, FORMER_CONNECTION_URL):
        with monkeypatch.context() as patch:
            patch.setenv(name, url)
            chosen = choose_database(tmp_path, None)
        assert chosen.url == used
        assert chosen.description.endswith(f"(from {name})")
        assert "canary" not in chosen.description


@pytest.mark.parametrize("variable", [None, CONNECTION_URL, FORMER_CONNECTION_URL])
def test_a_named_sqlite_database_is_described_as_one(
    variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, shown = "sqlite:////tmp/prefect.db", "sqlite:////tmp/prefect.db"
    if variable is not None:
        monkeypatch.setenv(variable, url)
        shown += f" (from {variable})"
    chosen = choose_database(tmp_path, url if variable is None else None)
    assert chosen.url == "sqlite+aiosqlite:////tmp/prefect.db"
    assert chosen.description == database.SQLITE_NOTE.format(reason=shown)


@pytest.mark.parametrize("url", ["mysql://me:canary@db/prefect", "prefect.db", "me:canary@db"])
def test_another_database_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--database: .* is no database for Prefect; give postgresql://") as caught:
        choose_database(tmp_path, url)
    assert "canary" not in str(caught.value)


@pytest.mark.service
def test_a_database_in_which_prefect_loses_events_is_refused(tmp_path: Path) -> None:
    server = Server()
    try:
        server.sql("CREATE DATABASE plain ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        url = server.url.rpartition("/")[0]
        reason = (
            r"--database: .*/plain has the encoding SQL_ASCII, in which Prefect loses events; create one with: createdb"
        )
        with pytest.raises(InputError, match=reason):
            choose_database(tmp_path, f"{url}/plain")
        assert choose_database(tmp_path, f"{url}/postgres").url.startswith("postgresql+asyncpg://")
    finally:
        server.close()


def test_sqlite_is_described_with_the_reason(tmp_path: Path) -> None:
    chosen, left = choose_database(tmp_path, "sqlite"), choose_database(tmp_path, None)
    assert (chosen.url, left.url) == ("", "")
    assert chosen.description == database.SQLITE_NOTE.format(reason="as chosen")
    remedy = "install postgresql, or autoopt[server] with pip, or name a URL with --database"
    assert left.description == f"{database.SQLITE_NOTE.format(reason='no PostgreSQL is installed')}; {remedy}"
    with pytest.raises(SystemFailure, match="--database: no PostgreSQL is installed; install postgresql, or autoopt"):
        choose_database(tmp_path, "postgresql")


def test_a_home_keeps_the_sqlite_database_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "prefect.db").touch()
    assert "as before; --database postgresql begins an empty one" in choose_database(tmp_path, None).description
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "elsewhere"))
    assert "no PostgreSQL is installed" in choose_database(tmp_path, None).description
