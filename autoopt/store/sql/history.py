"""The rows of `worker_death` and `release_step`, which are only added to."""

from __future__ import annotations

import uuid

from sqlalchemy import Table, delete, select

from autoopt.results.sweep import Release
from autoopt.store import codec
from autoopt.store.records import DeathRecord, ReleaseRecord
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import Row, fetch_all, from_row, insert_if_absent, to_row


class SqlDeaths:
    """Deaths of workers, by which work is quarantined."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, record: DeathRecord) -> None:
        """Add a death; the store sets its time."""
        _append(self._database, tables.worker_death, to_row(tables.worker_death, record))

    def all(self) -> tuple[DeathRecord, ...]:
        """All deaths, oldest first."""
        table = tables.worker_death
        rows = fetch_all(self._database, select(table).order_by(table.c.number))
        return tuple(from_row(DeathRecord, table, row, libraries=tuple(codec.loads(row["libraries"]))) for row in rows)

    def remove(self, subject: str) -> None:
        """Remove the deaths that a subject has caused."""
        table = tables.worker_death
        self._database.write(lambda connection: connection.execute(delete(table).where(table.c.subject == subject)))


class SqlReleases:
    """Promotions and rollbacks of the models of zoos."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, record: ReleaseRecord) -> None:
        """Add a promotion or a rollback; the store sets its time."""
        release = record.release
        names = {"zoo": codec.text(release.zoo), "model": codec.text(release.entry.name)}
        row = {**to_row(tables.release_step, record), **names, "release": codec.dumps(release.to_json())}
        _append(self._database, tables.release_step, row)

    def all(self, zoo: str | None = None) -> tuple[ReleaseRecord, ...]:
        """All promotions and rollbacks, or those of a zoo, oldest first."""
        table = tables.release_step
        query = select(table).order_by(table.c.number)
        if zoo is not None:
            query = query.where(table.c.zoo == codec.text(zoo))
        records = []
        for row in fetch_all(self._database, query):
            release = Release.from_json(codec.loads(row["release"]))
            records.append(from_row(ReleaseRecord, table, row, release=release))
        return tuple(records)


def _append(database: Database, table: Table, row: Row) -> None:
    row = {**row, "id": uuid.uuid4().hex, "time": database.now}
    # A repeated transaction adds the row only once, by its id.
    database.write(lambda connection: insert_if_absent(connection, table, row))
