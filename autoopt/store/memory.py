"""Databases in memory, for tests and for rows that only pass through."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Double, StaticPool, func
from sqlalchemy.engine import URL
from sqlalchemy.sql import ColumnElement

from autoopt.store.sql.database import Database, sqlite_engine
from autoopt.store.sql.store import SqlStore


class MemoryDatabase(Database):
    """A SQLite database in memory with a clock of the caller. Its threads take turns on one connection."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        url = URL.create("sqlite")
        engine = sqlite_engine(url, StaticPool)
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None  # it is checked out
            driver.create_function("caller_clock", 0, clock)
        super().__init__(url, engine)
        self._turn = threading.RLock()

    @property
    def now(self) -> ColumnElement[float]:
        """The caller's clock."""
        return func.caller_clock(type_=Double)

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Connection]:
        """One transaction, alone."""
        with self._turn, super().transaction(writing=writing) as connection:
            yield connection

    def make_durable(self) -> None:
        """Do nothing: there is no file."""

    def close(self) -> None:
        """Do nothing: closing the connection would empty the database."""


class MemoryStore(SqlStore):
    """See `Store`. Nothing survives it but the artifacts, which are files below `home` for workers to read."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        """Make an empty store on a clock that returns seconds since 1970."""
        super().__init__(MemoryDatabase(clock), home, adopt=True)
