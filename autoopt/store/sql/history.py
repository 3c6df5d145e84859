"""The rows of `sweep`, `release_step` and `worker_death`: what zoos and workers have done."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from sqlalchemy import Connection, Table, delete, select, update

from autoopt.errors import one_line
from autoopt.results.sweep import Release
from autoopt.store.records import LEASE_SECONDS, DeathRecord, Json, ReleaseRecord, RunStatus, SweepRecord, new_id
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import Lookup, Row, dumps, fetch_all, from_row, insert_if_absent, insert_into, loads, to_row

_T = tables.sweep.c
_LOOKUP = Lookup(tables.sweep, "id", "sweep", "'autoopt nights' lists them", newest_by="number")


class SqlSweeps:
    """Sweeps: plans executed over a zoo of models."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def create(self, record: SweepRecord) -> SweepRecord:
        """Store a new sweep, claimed by its owner if it names one; an empty id is filled in."""
        sweep = record.id or new_id()
        row = {**to_row(tables.sweep, record), "id": sweep, "created": self._database.now}
        if record.owner is not None:
            row["lease"] = self._database.now + LEASE_SECONDS
        self._database.write(lambda connection: insert_if_absent(connection, tables.sweep, row))
        return self.get(sweep)

    def finish(self, sweep: str, status: RunStatus = "finished", result: Json | None = None) -> None:
        """Set the status and the result of a sweep; does nothing if another owner has continued it."""
        is_own = _T.owner.is_(None) | (_T.owner == self._owner) | (_T.status != "running")
        end = update(tables.sweep).where(_T.id == sweep, is_own)
        content = None if result is None else dumps(result)
        end = end.values(status=status, result=content, lease=None, finished=self._database.now)
        self._database.write(lambda connection: connection.execute(end))

    def add_entry(self, sweep: str, model: str, entry: Json) -> None:
        """Store the entry of a model that the sweep has finished, for a resumed sweep; replaces an earlier one."""
        row = {"sweep": sweep, "model": one_line(model), "entry": dumps(entry)}

        def work(connection: Connection) -> None:
            statement = insert_into(connection, tables.sweep_entry).values(row)
            connection.execute(statement.on_conflict_do_update(index_elements=["sweep", "model"], set_=row))

        self._database.write(work)

    def entries(self, sweep: str) -> dict[str, Json]:
        """The entries stored by `add_entry`, by model."""
        query = select(tables.sweep_entry).where(tables.sweep_entry.c.sweep == sweep)
        return {row["model"]: loads(row["entry"]) for row in fetch_all(self._database, query)}

    def get(self, name: str) -> SweepRecord:
        """The sweep with this id, or the `latest`."""
        return from_row(SweepRecord, tables.sweep, _LOOKUP.find(self._database, name))

    def names(self) -> list[str]:
        """The names of all sweeps, each once."""
        return [row["name"] for row in fetch_all(self._database, select(_T.name).distinct())]

    def all(self, name: str | None = None) -> Iterator[SweepRecord]:
        """All sweeps, or those with this name, newest first.

        Each is read when the iterator reaches it: the results of many nights need not fit into memory.
        """
        query = select(_T.id).order_by(_T.number.desc())
        if name is not None:
            query = query.where(_T.name == one_line(name))
        for row in fetch_all(self._database, query):
            # A sweep that was deleted in the meantime is left out.
            for sweep in fetch_all(self._database, select(tables.sweep).where(_T.id == row["id"])):
                yield from_row(SweepRecord, tables.sweep, sweep)


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
        return tuple(from_row(DeathRecord, table, row) for row in rows)

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
        names = {"zoo": one_line(release.zoo), "model": one_line(release.entry.name)}
        row = {**to_row(tables.release_step, record), **names, "release": dumps(release.to_json())}
        _append(self._database, tables.release_step, row)

    def all(self, zoo: str | None = None) -> tuple[ReleaseRecord, ...]:
        """All promotions and rollbacks, or those of a zoo, oldest first."""
        table = tables.release_step
        query = select(table).order_by(table.c.number)
        if zoo is not None:
            query = query.where(table.c.zoo == one_line(zoo))
        records = []
        for row in fetch_all(self._database, query):
            release = Release.from_json(loads(row["release"]))
            records.append(from_row(ReleaseRecord, table, row, release=release))
        return tuple(records)


def _append(database: Database, table: Table, row: Row) -> None:
    row = {**row, "id": uuid.uuid4().hex, "time": database.now}
    # A repeated transaction adds the row only once, by its id.
    database.write(lambda connection: insert_if_absent(connection, table, row))
