"""Exported runs of earlier schemas: their rows go through the same migrations as a database does."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection, MetaData, Table, insert, select

from autoopt.store.sql.database import Database
from autoopt.store.sql.schema import revisions, upgrade

Rows: TypeAlias = dict[str, list[dict[str, Any]]]


def is_older(schema: Any) -> bool:
    """Whether this autoopt knows how to bring rows of that schema to its own."""
    return schema in revisions()


def migrated(rows: Mapping[str, Any], schema: str) -> Rows:
    """The rows of an exported run, by table, as the newest schema has them, made in a database of their own.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: they are no rows of that schema.
        KeyError: a table that it does not have.
    """
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'rows.db'}")
        try:
            with database.transaction(writing=True) as connection:
                return _migrated(connection, rows, schema)
        finally:
            database.close()


def _migrated(connection: Connection, rows: Mapping[str, Any], schema: str) -> Rows:
    upgrade(connection, None, schema)
    before = _tables(connection)
    written = {name: {column for row in items for column in row} for name, items in rows.items()}
    for table in before.sorted_tables:
        for row in rows.get(table.name, []):
            connection.execute(insert(table).values(row))
    unknown = set(rows) - set(before.tables)
    if unknown:
        raise KeyError(min(unknown))
    upgrade(connection, schema)
    made: Rows = {name: [] for name in rows}
    for table in _tables(connection).sorted_tables:
        if columns := _kept(table, before, written):
            made[table.name] = [dict(row) for row in connection.execute(select(*columns)).mappings()]
    return made


def _tables(connection: Connection) -> MetaData:
    found = MetaData()
    found.reflect(connection)
    found.remove(found.tables["alembic_version"])
    return found


def _kept(table: Table, before: MetaData, written: Mapping[str, set[str]]) -> list[Any]:
    """The columns that the rows gave, and those that migrations added to them; numbers of rows, owners and leases are
    not taken over. None where there are no rows."""
    old, given = before.tables.get(table.name), written.get(table.name, set())
    if old is None:
        return list(table.c)
    return [column for column in table.c if column.name in given or column.name not in old.c] if given else []
