"""Reading and writing rows: values of records as JSON text, one-line text and numbers, and back; finding rows by id."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from sqlalchemy import ColumnElement, Connection, Insert, RowMapping, Select, Table, select

from autoopt.errors import InputError, SystemFailure, one_line
from autoopt.json_codec import JsonTypeError, from_json
from autoopt.model.candidate import Candidate
from autoopt.store.sql.database import Database

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql import Insert as PostgresqlInsert
    from sqlalchemy.dialects.sqlite import Insert as SqliteInsert


RESTORE: Final = "bring back a backup with 'autoopt store restore FOLDER'"
Item = TypeVar("Item")
Record = TypeVar("Record")
Row: TypeAlias = dict[str, object]
"""Values to write, by column."""
LONGEST_ID: Final = 64
"""Characters of a SHA-256; no id is longer."""
LARGEST: Final = 2**31 - 1
"""The largest number that every supported database takes."""
BATCH = 500
"""Parameters of one statement; every supported database takes this many."""


def dumps(value: object) -> str:
    """JSON text in ASCII, equal for equal values, which may hold mappings and dataclasses of any kind.

    Unlike `canonical_json` it allows infinities and NaN, which metrics may be.
    """
    return _ENCODER.encode(value)


def _as_dict(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_as_dict)


def loads(text: str | None) -> Any:  # noqa: ANN401  the caller knows the form of what it stored
    """The value of a JSON column; None for NULL.

    Raises:
        SystemFailure: Something else has written to the database, or its file is damaged.
    """
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise SystemFailure(f"a value in the database is damaged: {text[:40]!r}", remedy=RESTORE) from None


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


def insert_into(connection: Connection, table: Table) -> SqliteInsert | PostgresqlInsert:
    """An INSERT of the connection's dialect, which can say what happens if a row with its key exists."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert

        return insert(table)
    from sqlalchemy.dialects.sqlite import insert as insert_into_sqlite

    return insert_into_sqlite(table)


def insert_if_absent(connection: Connection, table: Table, values: Mapping[str, object]) -> bool:
    """Insert a row unless a row with its key exists; True if it was inserted."""
    return is_written(connection, insert_into(connection, table).values(values).on_conflict_do_nothing())


def is_written(connection: Connection, statement: Insert) -> bool:
    """Execute an INSERT of one row; True if it wrote the row."""
    count = connection.execute(statement.inline(), execution_options={"preserve_rowcount": True}).rowcount
    assert count in (0, 1), "the driver must count rows"
    return bool(count)


def to_row(table: Table, record: object) -> Row:
    """The fields of a record for which the table has a column of the same name: JSON as text, text on one line.

    Empty JSON is NULL where the column allows it. A candidate has two columns, see `tables`.
    """
    row: Row = {}
    for column in table.c:
        if "candidate" in column.info:
            candidate: Candidate | None = getattr(record, column.info["candidate"])
            row[column.name] = candidate and candidate.artifact
            row[column.info["options"]] = candidate and dumps(candidate.session_options)
        elif hasattr(record, column.name):
            value = getattr(record, column.name)
            if column.info.get("json"):
                value = dumps(value) if value or not column.nullable else None
            elif isinstance(value, str):
                value = one_line(value)
            row[column.name] = value
    return row


def from_row(kind: type[Record], table: Table, row: RowMapping, **values: object) -> Record:
    """The record in a row; `values` are those of fields that no column holds as they are.

    Raises:
        SystemFailure: Something else has written to the database, or its file is damaged.
    """
    for column in table.c:
        value = row[column.name]
        if "candidate" in column.info and value is not None:
            values[column.info["candidate"]] = Candidate(value, loads(row[column.info["options"]]) or {})
        elif column.info.get("json"):
            value = loads(value)
            if value is None:
                continue  # the record's default
        values.setdefault(column.name, value)
    try:
        return from_json(kind, values)
    except JsonTypeError as error:
        raise SystemFailure(f"a value in the database is damaged: {error}", remedy=RESTORE) from None


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
    listing: str = ""
    """The remedy for an unknown name: where such rows are listed."""
    newest_by: str = ""
    """The column whose largest value is `latest`; empty if there is no such name."""
    newest_among: ColumnElement[bool] | None = None
    """The rows among which `latest` is chosen, if not all of them."""

    def find(self, database: Database, name: str) -> RowMapping:
        """Find the one row that `name` stands for.

        Raises:
            InputError: No row matches, or several do.
        """
        rows = database.read(lambda connection: self._matches(connection, name))
        if not rows and self.newest_by and name == "latest":
            raise InputError(f"there is no {self.what} yet", where=database.safe_url)
        if not rows:
            message = f"there is no {self.what} {name!r} in the store"
            raise InputError(message, where=database.safe_url, remedy=self.listing)
        if len(rows) > 1:
            # Four more digits nearly always make the choice clear.
            beginnings = ", ".join(row[self.column][: len(name) + 4] for row in rows)
            raise InputError(f"{self.what} {name!r} is ambiguous", remedy=f"give more of it: {beginnings}")
        return rows[0]

    def _matches(self, connection: Connection, name: str) -> Sequence[RowMapping]:
        table, key = self.table, self.table.c[self.column]
        if self.newest_by and name == "latest":
            newest = select(table).order_by(table.c[self.newest_by].desc()).limit(1)
            if self.newest_among is not None:
                newest = newest.where(self.newest_among)
            return connection.execute(newest).mappings().all()
        exact = connection.execute(select(table).where(key == name)).mappings().all()
        if exact or not name or len(name) > LONGEST_ID:  # SQLite compares no beginnings of any length
            return exact
        # Three are enough to show that the beginning is ambiguous.
        similar = select(table).where(key.startswith(name, autoescape=True)).order_by(key).limit(3)
        return connection.execute(similar).mappings().all()
