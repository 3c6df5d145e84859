"""Reading and writing rows, for all parts of the SQL store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, RowMapping, Select, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from autoopt.store.lookup import require_single_match
from autoopt.store.sql.database import Database

Item = TypeVar("Item")
BATCH = 500
"""Parameters of one statement; every supported database takes this many."""


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Split `items` into lists of at most `BATCH`."""
    batch: list[Item] = []
    for item in items:
        batch.append(item)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def is_among(column: Column[str], values: Sequence[str]) -> ColumnElement[bool]:
    """The condition that a column holds one of `values`."""
    if len(values) == 1:
        # The most frequent question by far; SQLAlchemy renders it in half the time of an IN.
        return column == values[0]
    return column.in_(values)


def insert_if_absent(connection: Connection, table: Table, values: Mapping[str, object]) -> bool:
    """Insert a row unless a row with its key exists; True if it was inserted."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = insert(table).values(dict(values)).on_conflict_do_nothing().inline()
    count = connection.execute(statement, execution_options={"preserve_rowcount": True}).rowcount
    assert count in (0, 1), "the driver must count rows"
    return bool(count)


def fetch_all(database: Database, query: Select[Any]) -> Sequence[RowMapping]:
    """The rows of a query, in a transaction of its own."""
    return database.read(lambda connection: connection.execute(query).mappings().all())


@dataclass(frozen=True)
class Lookup:
    """The way to find a row by its id or the beginning of it."""

    table: Table
    column: str
    """The column that holds the id."""
    what: str
    """The name of such a row in messages."""
    newest_by: str = ""
    """The column whose largest value `latest` stands for; empty if there is no such name."""
    newest_among: ColumnElement[bool] | None = None
    """The rows that `latest` may stand for, if not all of them."""

    def find(self, database: Database, name: str) -> RowMapping:
        """Find the one row that `name` stands for.

        Raises:
            InputError: No row matches, or several do.
        """
        rows = database.read(lambda connection: self._matches(connection, name))
        require_single_match(self.what, name, [str(row[self.column]) for row in rows], database.safe_url)
        return rows[0]

    def _matches(self, connection: Connection, name: str) -> Sequence[RowMapping]:
        table, key = self.table, self.table.c[self.column]
        if self.newest_by and name == "latest":
            newest = select(table).order_by(table.c[self.newest_by].desc()).limit(1)
            if self.newest_among is not None:
                newest = newest.where(self.newest_among)
            return connection.execute(newest).mappings().all()
        exact = connection.execute(select(table).where(key == name)).mappings().all()
        if exact or not name:
            return exact
        # Three are enough to show that the beginning is ambiguous.
        similar = select(table).where(key.startswith(name, autoescape=True)).order_by(key).limit(3)
        return connection.execute(similar).mappings().all()
