"""Exported runs of earlier schemas: their rows pass through the same migrations as a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from sqlalchemy import Connection, MetaData, Table, insert, select

from autoopt.store.memory import MemoryDatabase
from autoopt.store.sql.schema import revisions, upgrade

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[str, list[Row]]
"""Rows by table."""


def is_older(schema: str) -> bool:
    """True if this autoopt can migrate rows of that schema to its own."""
    return schema in revisions()


def migrated(rows: Rows, schema: str) -> Rows:
    """The rows of an exported run in the newest schema, made in a database in memory.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: They are not rows of that schema.
        KeyError: A table that the schema does not have.
    """
    with MemoryDatabase().transaction(writing=True) as connection:
        upgrade(connection, None, schema)
        before = _tables(connection)
        if not rows.keys() <= before.keys():
            raise KeyError(min(rows.keys() - before.keys()))
        # An export leaves out the numbers of rows, owners and leases, and they stay out.
        left_out: dict[str, set[str]] = {}
        for name, table in before.items():
            left_out[name] = set(table.c.keys())
            for row in rows.get(name, []):
                connection.execute(insert(table).values(row))
                left_out[name] -= row.keys()
        upgrade(connection, schema)
        result: Rows = {name: [] for name in rows}
        for name, table in _tables(connection).items():
            columns = [column for column in table.c if column.name not in left_out.get(name, set())]
            if columns:
                result[name] = [dict(row) for row in connection.execute(select(*columns)).mappings()]
        return result


def _tables(connection: Connection) -> Mapping[str, Table]:
    """The tables of the database, in the order in which rows can be inserted."""
    metadata = MetaData()
    metadata.reflect(connection)
    return {table.name: table for table in metadata.sorted_tables if table.name != "alembic_version"}
