"""Prefect's database under `autoopt serve`: a named one, a PostgreSQL server started for it, or SQLite.

SQLite has one writer at a time, so it comes last.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from autoopt.errors import InputError, SystemFailure
from autoopt.orchestrate.server.postgres import LocalPostgres, PostgresUnavailable, local_postgres
from autoopt.settings import without_password

CONNECTION_URL = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
"""Prefect's setting; the server alone gets it, because the URL may hold a password."""
FORMER_CONNECTION_URL = "PREFECT_API_DATABASE_CONNECTION_URL"
"""The name of the setting in earlier versions of Prefect, which still reads it."""
POSTGRESQL, SQLITE = "postgresql", "sqlite"
SQLITE_FILE = "prefect.db"
CONNECT_SECONDS = 10.0
SQLITE_NOTE = "Prefect's database: SQLite ({reason}); use PostgreSQL for more than 100 flow runs at once"


@dataclass(frozen=True)
class ServerDatabase:
    """The database of a Prefect server."""

    description: str
    """One line for the user."""
    url: str = ""
    """SQLAlchemy URL; empty for Prefect's own SQLite file."""
    postgres: LocalPostgres | None = None
    """The server to start before Prefect's."""

    @property
    def is_sqlite(self) -> bool:
        """True for Prefect's own SQLite file, and for the URL of another one."""
        return not self.url or self.url.startswith("sqlite")


def choose_database(home: Path, choice: str | None) -> ServerDatabase:
    """Choose Prefect's database.

    Args:
        home: the home, which holds the data of a PostgreSQL server that is started.
        choice: a URL, `postgresql` to start a server or fail, `sqlite`, or None: the URL in Prefect's own setting, else
            SQLite if this home already has such a database, else PostgreSQL if it can be started, else SQLite.

    Raises:
        InputError: the choice is none of these, or a database in SQL_ASCII, in which Prefect loses events.
        SystemFailure: PostgreSQL was asked for and cannot be started, or the home's data need another version.
    """
    if choice is None:
        for variable in (CONNECTION_URL, FORMER_CONNECTION_URL):
            url = os.environ.get(variable)
            if url:
                return _named(url, variable, f" (from {variable})")
        if _sqlite_file(home).exists():
            return ServerDatabase(SQLITE_NOTE.format(reason="as before; --database postgresql begins an empty one"))
    elif choice == SQLITE:
        return ServerDatabase(SQLITE_NOTE.format(reason="as chosen"))
    elif choice != POSTGRESQL:
        return _named(choice, "--database")
    try:
        postgres = local_postgres(home)
    except PostgresUnavailable as error:
        if choice == POSTGRESQL:
            raise SystemFailure(str(error), where="--database", remedy=error.remedy) from None
        return ServerDatabase(f"{SQLITE_NOTE.format(reason=str(error))}; {error.remedy}")
    description = f"Prefect's database: PostgreSQL {postgres.version}, started for it, data in {postgres.folder}"
    return ServerDatabase(description, postgres.url, postgres)


def _named(url: str, where: str, origin: str = "") -> ServerDatabase:
    """The database at a URL, which `where` states."""
    shown = f"{without_password(url)}{origin}"
    database = ServerDatabase(f"Prefect's database: {shown}", _with_driver(url, where))
    if database.is_sqlite:
        return replace(database, description=SQLITE_NOTE.format(reason=shown))
    if _encoding(database.url) == "SQL_ASCII":
        reason = f"{without_password(url)} has the encoding SQL_ASCII, in which Prefect loses events"
        remedy = "create one with: createdb --encoding UTF8 --template template0 NAME"
        raise InputError(reason, where=where, remedy=remedy)
    return database


def _encoding(url: str) -> str:
    """The encoding of a PostgreSQL database; empty for SQLite, and if Prefect's own settings are needed to reach it."""
    if not url.startswith("postgresql"):
        return ""
    import asyncpg

    async def ask() -> str:
        connection = await asyncpg.connect(url.replace("+asyncpg", "", 1), timeout=CONNECT_SECONDS)
        try:
            return str(await connection.fetchval("SHOW server_encoding"))
        finally:
            await connection.close()

    with suppress(OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return asyncio.run(ask())
    return ""


def _sqlite_file(home: Path) -> Path:
    return Path(os.environ.get("PREFECT_HOME") or home / "prefect") / SQLITE_FILE


def _with_driver(url: str, where: str) -> str:
    """The URL with the asynchronous driver that Prefect needs."""
    scheme, separator, rest = url.partition("://")
    if separator and re.fullmatch(r"postgres(ql)?(\+\w+)?", scheme):
        return f"postgresql+asyncpg://{rest}"
    if separator and re.fullmatch(r"sqlite(\+\w+)?", scheme):
        return f"sqlite+aiosqlite://{rest}"
    remedy = "give postgresql://user:password@host/database, postgresql or sqlite"
    raise InputError(f"{without_password(url)!r} is no database for Prefect", where=where, remedy=remedy)
