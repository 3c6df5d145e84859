"""One database: connections, transactions, and the handling of their failures."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from sqlalchemy import Connection, Double, Engine, create_engine, event, func, literal_column, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.sql import ColumnElement

from autoopt.errors import InputError, Interrupt, SystemFailure, one_line
from autoopt.settings import settings
from autoopt.store.filesystem import refuse_network_filesystem

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

USUAL_PATIENCE: Final = 90.0
"""Seconds for which a database that does not answer is tried again, unless AUTOOPT_PATIENCE says otherwise."""
_SILENCE: Final = 3.0
"""Seconds after which a wait for the database is said."""
BUSY_SECONDS: Final = 0.5
"""Time that SQLite itself waits for other writers, in which no signal is handled; then the transaction is repeated."""
CONNECT_ATTEMPTS: Final = 3
"""Number of failed first connections after which the address counts as wrong."""
# Without these, TCP waits for a machine that is gone for a quarter of an hour, and with nothing to send for two hours.
_PROBES: Final = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}
"""Seconds and number of the probes of an idle connection."""
_ACKNOWLEDGED_IN: Final = 30_000
"""Milliseconds within which the other side has to acknowledge what was sent."""
CONNECTION_ARGUMENTS: Final[Mapping[str, Any]] = {
    # Without an encoding, psycopg returns the text of databases made in the C locale (SQL_ASCII) as bytes.
    "client_encoding": "utf8",
    "connect_timeout": 10,
    "tcp_user_timeout": _ACKNOWLEDGED_IN,
    **_PROBES,
}
"""Arguments of libpq, which an address may override."""
_TRANSIENT_STATES: Final = frozenset({"57P01", "57P02", "57P03", "40001", "40P01", "53300", "08000", "08003", "08006"})
"""PostgreSQL: shutting down or starting up, serialisation, deadlock, too many or lost connections."""
_BUGS: Final = ("ProgrammingError", "IntegrityError", "DataError", "NotSupportedError")
_AWAY: Final = ("refused", "timeout expired", "timed out", "unreachable", "No route to host", "closed the connection")
"""Words of libpq about a server that does not answer."""
_EXAMPLES: Final = "write sqlite:////folder/autoopt.db or postgresql://user@host/database"
DAMAGED: Final = "bring back a backup with 'autoopt store restore FOLDER'; check AUTOOPT_DB_URL if it is another file"
_REMEDIES: Final = {
    "is full": "free some space ('autoopt store gc' may), or move the store with AUTOOPT_HOME",
    "disk i/o": (
        "the disk is full or broken, or files may not grow (ulimit -f): free some space ('autoopt store gc' may), "
        "or move the store with AUTOOPT_HOME"
    ),
    "no space left": "free some space on the database's server",
    "not a database": DAMAGED,
    "malformed": DAMAGED,
    "no such table": DAMAGED,
    "readonly database": "the store is on something that cannot be written to; move it with AUTOOPT_HOME",
}
"""Remedies by words in the message of a database that cannot be read or written."""


def read_url(url: str) -> URL:
    """The address with the driver that autoopt uses.

    Raises:
        InputError: Not an address of SQLite or PostgreSQL. The message does not show it: it may hold a password.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        raise InputError("the database address cannot be read", remedy=_EXAMPLES) from None
    if parsed.password is not None and url.count("@") > 1:  # the password may have been taken for the host
        raise InputError("the database address has more than one @", remedy="write %40 for an @ in the password")
    backend = parsed.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return parsed.set(drivername="sqlite", database=str(Path(str(parsed.database)).absolute()))
    raise InputError(f"databases of kind {backend!r} without a file or server are not supported", remedy=_EXAMPLES)


def without_secrets(url: URL) -> str:
    """An address without password, options and driver, fit for messages."""
    return url.set(query={}, drivername=url.get_backend_name()).render_as_string(hide_password=True)


class Database:
    """Connections to one database. Thread-safe; after a fork each process gets connections of its own.

    `read` and `write` run a function in a transaction and return its result. If the connection or the server fails,
    they repeat it on a fresh connection for at most `patience` seconds, or until a signal ends the process. The answer
    to a commit can be lost, so a function that writes must also be right if its changes have already been made.
    """

    def __init__(self, url: URL, engine: Engine, *, patience: float = USUAL_PATIENCE, read_only: bool = False) -> None:
        """Use an engine for the database at `url`; `open_database` makes one."""
        self.url = url
        self.safe_url = without_secrets(url)
        self.patience = patience
        self.sqlite = engine.dialect.name == "sqlite"
        self.read_only = read_only
        self._engine = engine
        self._process = os.getpid()

    @property
    def now(self) -> ColumnElement[float]:
        """The database's clock, in seconds since 1970."""
        if self.sqlite:
            return literal_column("((julianday('now') - 2440587.5) * 86400.0)", Double)
        return func.cast(func.extract("epoch", func.clock_timestamp()), Double)

    def clock(self) -> float:
        """The time of the database, in seconds since 1970."""
        return float(self.read(lambda connection: connection.execute(select(self.now)).scalar_one()))

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work` in a transaction that only reads and sees one state of the database."""
        return self._repeat(work, writing=False)

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work` in a transaction that is committed as a whole or not at all."""
        return self._repeat(work, writing=True)

    def run_first(self, work: Callable[[Connection], Result], *, writing: bool) -> Result:
        """Like `read` or `write`, for the first transaction: if connecting keeps failing, the address counts as wrong.

        A server that does not answer may be restarting: it gets the usual time.

        Raises:
            InputError: There is no such server, database, user or password.
        """
        for attempt in range(1, CONNECT_ATTEMPTS + 1):
            try:
                with self.transaction(writing=writing) as connection:
                    return work(connection)
            except DBAPIError as error:
                remedy = _remedy(error)
                if remedy == DAMAGED:
                    raise InputError(self._message(error), where=self.safe_url, remedy=remedy) from None
                if remedy:
                    raise self._failure(error) from None
                if self._was_reached(error) or self._is_away(error):
                    break
                if attempt == CONNECT_ATTEMPTS or not self._is_transient(error):
                    raise InputError(self._message(error), where=self.safe_url, remedy=self._address_remedy) from None
            time.sleep(0.1 * random.random())
        return self._repeat(work, writing=writing)

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Connection]:
        """One transaction that is not repeated.

        On SQLite a writing one begins IMMEDIATE, so that it never finds out half-way that another process is writing.
        """
        if self._process != os.getpid():
            self._engine.dispose(close=False)
            self._process = os.getpid()
        with self._engine.connect() as connection:
            connection = connection.execution_options(writing=writing and not self.read_only)
            with connection.begin():
                yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """One transaction that sees one state of the database, however many statements it takes. It is not repeated."""
        options: dict[str, Any] = {"writing": False}
        if not self.sqlite:
            options["isolation_level"] = "REPEATABLE READ"
        with self._engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    def make_durable(self) -> None:
        """Make all commits outlast a power cut; PostgreSQL does so at each commit.

        Raises:
            SystemFailure: The disk is full or broken.
        """
        if not self.sqlite:
            return
        with self._engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None  # it is checked out
            try:
                driver.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
            except sqlite3.Error as error:
                raise SystemFailure(one_line(str(error)), where=self.safe_url, remedy=_remedy(error)) from None

    def copy_to(self, file: Path) -> None:
        """Copy one state of a SQLite database into a new file, while others may read and write.

        Raises:
            SystemFailure: The disk is full or broken.
        """
        try:
            with self._engine.connect() as connection, closing(sqlite3.connect(file)) as target:
                driver = connection.connection.driver_connection
                assert driver is not None  # it is checked out
                driver.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
        except DBAPIError as error:
            raise self._failure(error) from None
        except sqlite3.Error as error:
            raise SystemFailure(one_line(str(error)), where=str(file), remedy=_remedy(error)) from None

    def close(self) -> None:
        """Close all connections; later calls open new ones."""
        self._engine.dispose()

    def _repeat(self, work: Callable[[Connection], Result], *, writing: bool) -> Result:
        started = time.monotonic()
        said = False
        pause = 0.02
        while True:
            try:
                with self.transaction(writing=writing) as connection:
                    return work(connection)
            except DBAPIError as error:
                if type(error).__name__ in _BUGS:
                    raise
                if not self._is_transient(error):
                    raise self._failure(error) from None
                seconds = time.monotonic() - started
                if Interrupt.received or seconds >= self.patience:
                    remedy = f"tried for {seconds:.0f} s; is it running?"
                    if not self.sqlite:
                        remedy += " Or is the address in AUTOOPT_DB_URL wrong?"
                    raise SystemFailure(self._message(error), where=self.safe_url, remedy=remedy) from None
                if not said and seconds >= _SILENCE:
                    said = True
                    wait = f"waits for the database, up to {self.patience:.0f} s"
                    logger.warning("%s: %s: %s", self.safe_url, wait, self._message(error))
            # Random pauses keep processes that failed together from retrying together.
            time.sleep(pause * (0.5 + random.random() / 2))
            pause = min(1.0, 2 * pause)

    def _is_transient(self, error: DBAPIError) -> bool:
        """True if trying again on a fresh connection may help."""
        if self.sqlite:
            return any(word in str(error.orig) for word in ("locked", "busy"))
        if error.connection_invalidated or _state(error) in _TRANSIENT_STATES:
            return True
        # A server that cannot be reached gives no state.
        return not _state(error) and type(error).__name__ in ("OperationalError", "InterfaceError")

    def _was_reached(self, error: DBAPIError) -> bool:
        """True for a transient error of a database that answers, so that its address must be right."""
        return self._is_transient(error) and (self.sqlite or error.connection_invalidated or bool(_state(error)))

    def _is_away(self, error: DBAPIError) -> bool:
        """True if no server answers at an address that may be right: it may be restarting."""
        return not self.sqlite and any(words in str(error.orig) for words in _AWAY)

    @property
    def _address_remedy(self) -> str:
        """The remedy for a database that cannot be opened at all."""
        if self.sqlite:
            return "check that the file can be read and written, or move the store with AUTOOPT_HOME"
        return "check the address in AUTOOPT_DB_URL"

    def _failure(self, error: DBAPIError) -> SystemFailure:
        return SystemFailure(self._message(error), where=self.safe_url, remedy=_remedy(error))

    def _message(self, error: DBAPIError) -> str:
        """The message of the driver on one line, without passwords in any spelling."""
        message = one_line(str(error.orig or error).strip())
        secrets = [value for name, value in self.url.query.items() if "pass" in name.lower()]
        for secret in (self.url.password, *secrets):
            text = str(secret or "")
            for spelling in {text, unquote(text), quote(text, safe="")} - {""}:
                message = message.replace(spelling, "***")
        return message


def open_database(address: str | Path, patience: float | None = None) -> Database:
    """Prepare connections to a database of SQLite or PostgreSQL, and create the folder of a SQLite file.

    Args:
        address: Its URL, or the path of a SQLite file, in which no character has a special meaning.
        patience: Seconds for which a failed transaction is repeated; by default `AUTOOPT_PATIENCE`, else 90.

    Raises:
        InputError: The address is wrong, or its folder is on a network file system or cannot be created, or a folder is
            in the file's place.
    """
    if patience is None:
        patience = settings().patience or USUAL_PATIENCE
    url = URL.create("sqlite", database=str(address.absolute())) if isinstance(address, Path) else read_url(address)
    if url.get_backend_name() == "sqlite":
        return _open_file(url, patience)
    arguments = {name: value for name, value in CONNECTION_ARGUMENTS.items() if name not in url.query}
    try:
        engine = create_engine(url, hide_parameters=True, connect_args=arguments)
    except ImportError:
        raise InputError("PostgreSQL needs the driver psycopg", remedy="pip install 'autoopt[postgres]'") from None
    # Connections end on both sides within a minute after the other side became unreachable.
    event.listen(engine, "connect", _set_server_probes)
    return Database(url, engine, patience=patience)


def _open_file(url: URL, patience: float) -> Database:
    """Prepare connections to a SQLite file, and create its folder."""
    file = Path(str(url.database))
    if file.exists() and not file.is_file():
        raise InputError("is not a file; the database cannot be there", where=str(file), remedy="move it away")
    refuse_network_filesystem(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what, where = f"cannot be created: {error.strerror}", str(file.parent)
        raise InputError(what, where=where, remedy="see AUTOOPT_HOME") from None
    # SQLite also keeps logs beside the file.
    if file.exists() and not (os.access(file.parent, os.W_OK) and os.access(file, os.W_OK)):
        return Database(url, _sqlite_engine(_read_only_url(url)), patience=patience, read_only=True)
    # SQLite's own files have one writer, whatever the umask is.
    with suppress(OSError):  # it exists; or SQLite says why it cannot be created
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return Database(url, _sqlite_engine(url), patience=patience)


def _set_server_probes(connection: DBAPIConnection, _record: object) -> None:
    """Let the server end this session, with its locks, when the client's machine is gone."""
    with closing(connection.cursor()) as cursor:
        settings = {**_PROBES, "user_timeout": _ACKNOWLEDGED_IN}
        cursor.execute("; ".join(f"SET tcp_{name} = {value}" for name, value in settings.items()))  # one round trip
    connection.commit()


def _sqlite_engine(url: URL) -> Engine:
    """Make an engine whose transactions begin here and not in the driver; connections may change their thread."""
    arguments = {"timeout": BUSY_SECONDS, "check_same_thread": False}
    engine = create_engine(url, hide_parameters=True, connect_args=arguments)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _read_only_url(url: URL) -> URL:
    """The address that reads a SQLite file which this user cannot write, and leaves nothing beside it.

    Without changes in a log, nobody is writing it, and it can be read without lock files. SQLite would create them,
    and the owner of the file could not write it as long as they belong to another user.
    """
    file = Path(str(url.database))
    log = file.with_name(file.name + "-wal")
    name, value = "immutable", "1"
    if log.exists() and log.stat().st_size:
        name, value = "mode", "ro"
    return url.set(database=f"file:{quote(bytes(file))}", query={name: value, "uri": "true"})


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # the driver's own BEGIN would be a deferred one
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # a power cut undoes the last commits, never half of one


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get("writing", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _remedy(error: BaseException) -> str:
    """The remedy for a damaged file, or a disk that accepts no more data; empty for other errors."""
    message = str(error).lower()
    return next((remedy for words, remedy in _REMEDIES.items() if words in message), "")


def _state(error: DBAPIError) -> str:
    """The SQLSTATE code that PostgreSQL gave."""
    return str(getattr(error.orig, "sqlstate", None) or "")
