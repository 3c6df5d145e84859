"""What the parts of the SQL store share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from autoopt.errors import InputError
from autoopt.model.candidate import digest_json
from autoopt.store import tables
from autoopt.store.artifacts import ArtifactFiles
from autoopt.store.base import Store
from autoopt.store.codec import dumps
from autoopt.store.database import Database

Item = TypeVar("Item")
BATCH = 500


class Part(Store):
    """A part of the SQL store: its state, and how rows are written."""

    db: Database
    files: ArtifactFiles

    def _insert_new(self, connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
        """Insert a row unless one with its key is there; whether it was inserted."""
        insert = sqlite.insert if self.db.sqlite else postgresql.insert
        new = insert(table).values(dict(values)).on_conflict_do_nothing().inline()
        count = connection.execute(new, execution_options={"preserve_rowcount": True}).rowcount
        assert count in (0, 1), "the driver must count rows"
        return bool(count)

    def _environment(self, connection: Connection, values: Mapping[str, Any]) -> str | None:
        """Store an environment; returns its digest."""
        if not values:
            return None
        digest = digest_json(dict(values))
        row = {"digest": digest, "content": dumps(values), "created": self.db.now}
        self._insert_new(connection, tables.environment, row)
        return digest

    def _all(self, query: Select[Any]) -> Sequence[RowMapping]:
        return self.db.read(lambda connection: connection.execute(query).mappings().all())

    def _find(
        self,
        table: Table,
        column: str,
        name: str,
        what: str,
        latest: str | None = None,
        whole: ColumnElement[bool] | None = None,
    ) -> RowMapping:
        """The one row whose `column` is `name` or begins with it; with `latest`, a column, also the newest by it, of
        those that are `whole`."""
        key = table.c[column]

        def query(connection: Connection) -> list[RowMapping]:
            if latest and name == "latest":
                newest = select(table).order_by(table.c[latest].desc()).limit(1)
                found = connection.execute(newest if whole is None else newest.where(whole))
            else:
                near = key.startswith(name, autoescape=True) if name else key == name
                exact = connection.execute(select(table).where(key == name)).mappings().all()
                if exact:
                    return list(exact)
                found = connection.execute(select(table).where(near).order_by(key).limit(3))
            return list(found.mappings())

        rows = self.db.read(query)
        if len(rows) > 1:
            begins = ", ".join(str(r[column])[: len(name) + 4] for r in rows)
            raise InputError(f"{what} {name!r} is ambiguous", remedy=f"give more of it: {begins}")
        if not rows:
            raise InputError(f"there is no {what} {name!r} in the store", where=self.safe_url)
        return rows[0]


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """`items` in lists of at most `BATCH`, which every database takes as parameters of one statement."""
    batch: list[Item] = []
    for item in items:
        batch.append(item)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
