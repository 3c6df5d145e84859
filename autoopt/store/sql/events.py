"""The rows of `event`."""

from __future__ import annotations

import uuid

from sqlalchemy import select

from autoopt.store import codec
from autoopt.store.contracts import EventStore
from autoopt.store.records import EventRecord
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import fetch_all, from_row, insert_if_absent, to_row

_T = tables.event.c


class SqlEvents(EventStore):
    """See `EventStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, record: EventRecord) -> None:
        identity = uuid.uuid4().hex  # a repeated transaction adds the event only once
        row = {
            **to_row(tables.event, record),
            "id": identity,
            "time": self._database.now,
            "content": codec.dumps(record.data),
        }
        self._database.write(lambda connection: insert_if_absent(connection, tables.event, row))

    def all(
        self, *, run: str | None = None, kind: str | None = None, subject: str | None = None, under: str | None = None
    ) -> tuple[EventRecord, ...]:
        query = select(tables.event).order_by(_T.number)
        for column, value in ((_T.run, run), (_T.kind, kind), (_T.subject, subject)):
            if value is not None:
                query = query.where(column == value)
        if under is not None:
            query = query.where(_T.subject.startswith(f"{under}/", autoescape=True))
        rows = fetch_all(self._database, query)
        return tuple(from_row(EventRecord, tables.event, row, data=codec.loads(row["content"])) for row in rows)
