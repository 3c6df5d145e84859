"""Reading and writing rows, for all parts of the SQL store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from sqlalchemy import Column, ColumnElement, Connection, Insert, RowMapping, Select, Table, bindparam, select
from sqlalchemy.ext.compiler import compiles

from autoopt.errors import InputError
from autoopt.store import codec
from autoopt.store.sql.database import Database
from autoopt.store.sql.tables import REPLACEABLE

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler

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
    # As parameters, because SQLAlchemy takes longer to build a statement from values than the database to execute it.
    row = {name: value for name, value in values.items() if not isinstance(value, ColumnElement)}
    computed = {name: value for name, value in values.items() if name not in row}
    return _is_inserted(connection, _InsertIfAbsent(table).values(computed).inline(), row)


class RowInsert:
    """An INSERT like `insert_if_absent`, built once: building it takes longer than executing it."""

    def __init__(
        self,
        table: Table,
        columns: Iterable[str] | None = None,
        *,
        replacing: bool = False,
        **computed: ColumnElement[Any],
    ) -> None:
        """Prepare the statement for these columns, by default all; the database fills the `computed` ones.

        With `replacing`, it replaces an existing row that fulfils `table.info[REPLACEABLE]`.
        """
        names = {column.name for column in table.c} if columns is None else {*columns, *computed}
        values = {name: computed.get(name, bindparam(name)) for name in names}
        kind = _InsertOrReplace if replacing else _InsertIfAbsent
        self._statement = kind(table).values(values).inline()

    def __call__(self, connection: Connection, row: Row) -> bool:
        """Write a row with a value for every other column; True if it was written."""
        return _is_inserted(connection, self._statement, row)


def _is_inserted(connection: Connection, statement: Insert, row: Row) -> bool:
    count = connection.execute(statement, row, execution_options={"preserve_rowcount": True}).rowcount
    assert count in (0, 1), "the driver must count rows"
    return bool(count)


class _InsertIfAbsent(Insert):
    """An INSERT whose SQL is compiled once; the dialects' own ones with a conflict clause are compiled at each use."""

    inherit_cache = True


@compiles(_InsertIfAbsent)
def _compile(statement: Insert, compiler: SQLCompiler, **options: object) -> str:
    insert: str = compiler.visit_insert(statement, **options)  # type: ignore[no-untyped-call]
    return f"{insert} ON CONFLICT DO NOTHING"


class _InsertOrReplace(Insert):
    """An INSERT that replaces all columns of a row with the same key if that fulfils the table's condition."""

    inherit_cache = True


@compiles(_InsertOrReplace)
def _compile_replacing(statement: Insert, compiler: SQLCompiler, **options: object) -> str:
    insert: str = compiler.visit_insert(statement, **options)  # type: ignore[no-untyped-call]
    table = cast("Table", statement.table)
    keys = ", ".join(column.name for column in table.primary_key)
    changes = ", ".join(f"{column.name} = excluded.{column.name}" for column in table.c if not column.primary_key)
    return f"{insert} ON CONFLICT ({keys}) DO UPDATE SET {changes} WHERE {table.info[REPLACEABLE]}"


def to_row(table: Table, record: object) -> Row:
    """The fields of a record for which the table has a column of the same name: JSON as text, text on one line.

    Empty JSON is NULL where the column allows it.
    """
    row: Row = {}
    for column in table.c:
        if hasattr(record, column.name):
            value = getattr(record, column.name)
            if column.info.get("json"):
                value = codec.dumps(value) if value or not column.nullable else None
            elif isinstance(value, str):
                value = codec.text(value)
            row[column.name] = value
    return row


def from_row(kind: type[Record], table: Table, row: RowMapping, **values: object) -> Record:
    """The record in a row; `values` are those of fields that no column holds as they are."""
    for column in table.c:
        if column.name in kind.__annotations__ and column.name not in values:
            value = row[column.name]
            if column.info.get("json"):
                if value is None:
                    continue  # the record's default
                value = codec.loads(value)
            values[column.name] = value
    make: Callable[..., Record] = kind
    return make(**values)


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
