"""One database: connections, transactions and what to do when they fail."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from sqlalchemy import Connection, Double, Engine, create_engine, event, func, literal_column
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.sql import ColumnElement

from autoopt.errors import InputError, SystemFailure, one_line
from autoopt.store.files.filesystem import refuse_network_filesystem

Result = TypeVar("Result")

BUSY_SECONDS: Final = 60.0
"""How long a SQLite writer waits for the others."""
_PASSING_STATES = frozenset({"57P01", "57P02", "57P03", "40001", "40P01", "53300", "08000", "08003", "08006"})
"""PostgreSQL: shutting down or starting up, serialisation, deadlock, too many or lost connections."""


def read_url(url: str) -> URL:
    """The address with the driver autoopt uses.

    Raises:
        InputError: not an address of SQLite or PostgreSQL; the address itself, which may hold a password, is not shown.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InputError("the database address cannot be read", remedy=_EXAMPLES) from None
    backend = parsed.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed.set(drivername="sqlite", database=str(Path(parsed.database).absolute()))
    raise InputError(f"databases of kind {backend!r} without a file or server are not supported", remedy=_EXAMPLES)


_EXAMPLES = "write sqlite:////folder/autoopt.db or postgresql://user@host/database"


class Database:
    """Connections to one database. Thread-safe; after a fork each process gets connections of its own.

    `read` and `write` run a function in a transaction and return its result. Both repeat it on a fresh connection when
    the connection or the server fails, for at most `patience` seconds: what a `write` function does must be right also
    when it was done already, as the answer to a commit can be lost.
    """

    def __init__(self, url: str, patience: float = 90.0) -> None:
        self.url = read_url(url)
        self.patience = patience
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self.frozen = False
        """Whether it can only be read, as its folder cannot be written to."""
        if self.sqlite:
            file = Path(str(self.url.database))
            refuse_network_filesystem(file)
            _make_folder(file.parent)
            self.frozen = file.exists() and not os.access(file.parent, os.W_OK)
        self._engine = _engine(_read_only(self.url) if self.frozen else self.url)
        self._process = os.getpid()

    @property
    def safe_url(self) -> str:
        """The address fit to be shown: no password, no options."""
        return safe(self.url)

    @property
    def now(self) -> ColumnElement[float]:
        """The database's clock, in seconds since 1970."""
        if self.sqlite:
            return literal_column("((julianday('now') - 2440587.5) * 86400.0)", Double)
        return func.cast(func.extract("epoch", func.clock_timestamp()), Double)

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """`work` in a transaction that only reads and sees one state of the database."""
        return self._carry_out(work, writing=False)

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """`work` in a transaction that is committed as a whole or not at all."""
        return self._carry_out(work, writing=True)

    def once(self, work: Callable[[Connection], Result]) -> Result:
        """Like `write`, but where connecting fails thrice it is taken for a mistake in the address.

        Raises:
            InputError: there is no such server, database, user or password.
        """
        for attempt in range(3):
            try:
                with self.transaction(writing=True) as connection:
                    return work(connection)
            except DBAPIError as error:
                known = self.sqlite or error.connection_invalidated or _state(error)  # it was reached before
                if _passing(error, self.sqlite) and known:
                    return self.write(work)
                if self._remedy(error):
                    raise self._failure(error) from None
                if attempt == 2 or not _passing(error, self.sqlite):
                    raise InputError(self._say(error), where=self.safe_url, remedy="see AUTOOPT_DB_URL") from None
            time.sleep(0.1 * random.random())
        raise AssertionError("unreachable")

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Connection]:
        """One transaction, without repeating. On SQLite a writing one begins IMMEDIATE, so that it never finds out
        half-way that another process is writing."""
        if self._process != os.getpid():
            self._engine.dispose(close=False)
            self._process = os.getpid()
        with self._engine.connect() as connection:
            connection = connection.execution_options(writing=writing and not self.frozen)
            with connection.begin():
                yield connection

    def settle(self) -> None:
        """Make all that is committed outlast a power cut; PostgreSQL does so at each commit.

        Raises:
            SystemFailure: the disk is full or broken.
        """
        if self.sqlite:
            with self._engine.connect() as connection:
                driver = connection.connection.driver_connection
                assert driver is not None  # it is checked out
                try:
                    driver.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
                except sqlite3.Error as error:
                    remedy = self._remedy(error)
                    raise SystemFailure(one_line(str(error)), where=self.safe_url, remedy=remedy) from None

    def close(self) -> None:
        self._engine.dispose()

    def _carry_out(self, work: Callable[[Connection], Result], *, writing: bool) -> Result:
        until = time.monotonic() + self.patience
        attempt = 0
        while True:
            try:
                with self.transaction(writing=writing) as connection:
                    return work(connection)
            except DBAPIError as error:
                if not _passing(error, self.sqlite):
                    if _is_bug(error):
                        raise
                    raise self._failure(error) from None
                if time.monotonic() >= until:
                    raise SystemFailure(
                        self._say(error), where=self.safe_url, remedy=f"tried for {self.patience:.0f} s; is it running?"
                    ) from None
            time.sleep(min(2.0, 0.02 * 2**attempt) * (0.5 + random.random() / 2))
            attempt += 1

    def _failure(self, error: DBAPIError) -> SystemFailure:
        return SystemFailure(self._say(error), where=self.safe_url, remedy=self._remedy(error.orig))

    def _remedy(self, error: BaseException | None) -> str:
        """What to do about a disk that does not take any more; empty for other errors."""
        if isinstance(error, DBAPIError):
            error = error.orig
        said = str(error).lower()
        return next((remedy for word, remedy in _DISK.items() if word in said), "")

    def _say(self, error: DBAPIError) -> str:
        said = one_line(str(error.orig or error).strip())
        named = [value for name, value in self.url.query.items() if "pass" in name.lower()]
        for secret in (str(text) for text in (self.url.password, *named) if text):
            for written in (secret, unquote(secret), quote(secret, safe="")):
                said = said.replace(written, "***")
        return said


_DISK: Final = {
    "is full": "free some space ('autoopt store gc' may), or move the store with AUTOOPT_HOME",
    "no space left": "free some space on the database's server",
    "readonly database": "the store is on something that cannot be written to; move it with AUTOOPT_HOME",
}
"""What a database says when it cannot write, and what to do."""


def _read_only(url: URL) -> URL:
    """The address of a SQLite file whose folder cannot be written to. Where no unwritten changes lie beside it, nobody
    writes it, and it needs no lock files."""
    file = Path(str(url.database))
    log = file.with_name(file.name + "-wal")
    how = {"mode": "ro"} if log.exists() and log.stat().st_size else {"immutable": "1"}
    return url.set(database=f"file:{quote(str(file))}", query={**how, "uri": "true"})


def safe(url: URL) -> str:
    """An address without password, options and driver."""
    return url.set(query={}, drivername=url.get_backend_name()).render_as_string(hide_password=True)


def _engine(url: URL) -> Engine:
    sqlite = url.get_backend_name() == "sqlite"
    options: dict[str, Any] = {"hide_parameters": True}
    if sqlite:
        options["connect_args"] = {"timeout": BUSY_SECONDS}
    else:
        options |= {"connect_args": {"connect_timeout": 10}, "pool_pre_ping": False}
    try:
        engine = create_engine(url, **options)
    except ImportError:
        raise InputError("PostgreSQL needs the driver psycopg", remedy="pip install 'autoopt[postgres]'") from None
    if sqlite:
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # the driver's own BEGIN would be a deferred one
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")  # a power cut undoes the last commits, never half of one
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get("writing", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be created: {error.strerror}", where=str(folder), remedy="see AUTOOPT_HOME") from None


def _state(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def _passing(error: DBAPIError, sqlite: bool) -> bool:
    """Whether trying again on a fresh connection may help."""
    if sqlite:
        return any(word in str(error.orig) for word in ("locked", "busy"))
    if error.connection_invalidated or _state(error) in _PASSING_STATES:
        return True
    return not _state(error) and type(error).__name__ in ("OperationalError", "InterfaceError")


def _is_bug(error: DBAPIError) -> bool:
    return type(error).__name__ in ("ProgrammingError", "IntegrityError", "DataError", "NotSupportedError")
