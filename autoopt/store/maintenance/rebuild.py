"""Rebuilding a store whose database was damaged or lost, from the rows that can be read and the artifacts."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Table, func, select
from sqlalchemy.exc import DBAPIError

from autoopt.store.contracts import Store
from autoopt.store.records import EventRecord
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database, open_database
from autoopt.store.sql.rows import insert_if_absent, to_row
from autoopt.store.sql.schema import check_tables, missing_tables
from autoopt.store.sql.store import SqlStore, require_sql
from autoopt.working_folder import STORE_WORK, working_folder

REPLACED: Final = "database_replaced"
"""Event: a database took the place of one that was lost, which may have named more artifacts."""
_COMPANIONS: Final = ("", "-wal", "-shm", "-journal")
"""Ends of the names of the files that make up a SQLite database."""


@dataclass(frozen=True)
class AdoptionResult:
    """The artifacts that had no row."""

    digests: tuple[str, ...]
    """Intact ones, which have a row now."""
    damaged: tuple[str, ...]


def set_aside_damaged(address: str | Path) -> Path | None:
    """Rename the files of a damaged SQLite database; returns the new path, or None if it is not damaged.

    `address` is as for `open_database`.

    Raises:
        InputError: A database on a server lacks a table.
    """
    database = open_database(address)
    if not database.sqlite:
        check_tables(database)
        return None
    file = Path(str(database.url.database))
    if not file.exists() or (is_sound(file) and not database.read(missing_tables)):
        return None
    database.close()
    number = 1
    while (aside := file.with_name(f"{file.name}.damaged-{number}")).exists():
        number += 1
    for end in _COMPANIONS:
        with suppress(FileNotFoundError):
            os.rename(f"{file}{end}", f"{aside}{end}")
    return aside


def is_sound(file: Path) -> bool:
    """True if SQLite can read all of a database file."""
    try:
        with closing(sqlite3.connect(file)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error:
        return False


def salvage(store: Store, damaged: Path) -> int:
    """Copy the rows that can still be read from a damaged SQLite file and fit together.

    Returns:
        The number of rows.
    """
    sql = require_sql(store)
    sql.home.mkdir(parents=True, exist_ok=True)
    with working_folder(sql.home / STORE_WORK) as scratch:
        copy = scratch / damaged.name  # SQLite would change the file and its log
        for end in _COMPANIONS:
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{damaged}{end}", f"{copy}{end}")
        rows = {table: list(_readable_rows(copy, table)) for table in tables.metadata.sorted_tables}

    def work(connection: Connection) -> int:
        count = 0
        for table, items in rows.items():
            for row in items:
                count += _insert_if_sound(connection, table, row)
        return count

    return sql.database.write(work)


def adopt_artifacts(store: Store) -> AdoptionResult:
    """Give rows to the intact artifacts that have none, and note that a database was lost."""
    sql = require_sql(store)
    recorded = {record.digest for record in sql.artifacts.all()}
    adopted: list[str] = []
    damaged: list[str] = []
    for digest in sorted(sql.files.digests() - recorded):
        if sql.files.is_intact(digest):
            add_artifact(sql, digest)
            adopted.append(digest)
        else:
            damaged.append(digest)
    sql.events.add(EventRecord(REPLACED, data={"adopted": len(adopted)}))
    return AdoptionResult(tuple(adopted), tuple(damaged))


def add_artifact(store: SqlStore, digest: str) -> None:
    """Add the row of an artifact: present if its files are here, else one that its lineage may make again."""
    row: dict[str, object] = {"digest": digest, "bytes": 0, "files": "{}", "present": 0}
    if store.files.exists(digest):
        row = {**to_row(tables.artifact, store.files.record(digest)), "present": 1}
    row["created"] = store.database.now
    store.database.write(lambda connection: insert_if_absent(connection, tables.artifact, row))


def seconds_since_replacement(database: Database, connection: Connection) -> float:
    """Seconds since the database took the place of a lost one; infinite if it never did."""
    event = tables.event.c
    query = select(func.max(event.time), database.now).where(event.kind == REPLACED)
    last, now = connection.execute(query).one()
    return float("inf") if last is None else float(now - last)


def _readable_rows(file: Path, table: Table) -> Iterator[Mapping[str, object]]:
    """The rows of a table up to the first damage, from both of its ends. Some come twice."""
    columns = ", ".join(f'"{column.name}"' for column in table.c)
    for order in ("", " ORDER BY rowid DESC"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(file)) as connection:
            connection.text_factory = lambda data: data.decode(errors="replace")
            for values in connection.execute(f'SELECT {columns} FROM "{table.name}"{order}'):
                yield dict(zip(table.c.keys(), values, strict=True))


def _insert_if_sound(connection: Connection, table: Table, row: Mapping[str, object]) -> bool:
    """Insert a row unless it refers to one that was lost, or is damaged itself."""
    try:
        with connection.begin_nested():
            return insert_if_absent(connection, table, row)
    except DBAPIError:
        return False
