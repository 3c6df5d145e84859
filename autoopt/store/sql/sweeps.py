"""The rows of `sweep`."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, RowMapping, select, update

from autoopt.store import codec
from autoopt.store.records import LEASE_SECONDS, Json, RunStatus, SweepRecord, new_id
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import Lookup, fetch_all, from_row, insert_if_absent, insert_into, to_row

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
        content = codec.dumps_optional(result)
        end = end.values(status=status, result=content, lease=None, finished=self._database.now)
        self._database.write(lambda connection: connection.execute(end))

    def add_entry(self, sweep: str, model: str, entry: Json) -> None:
        """Store the entry of a model that the sweep has finished, for a resumed sweep; replaces an earlier one."""
        row = {"sweep": sweep, "model": codec.text(model), "entry": codec.dumps(entry)}

        def work(connection: Connection) -> None:
            statement = insert_into(connection, tables.sweep_entry).values(row)
            connection.execute(statement.on_conflict_do_update(index_elements=["sweep", "model"], set_=row))

        self._database.write(work)

    def entries(self, sweep: str) -> dict[str, Json]:
        """The entries stored by `add_entry`, by model."""
        query = select(tables.sweep_entry).where(tables.sweep_entry.c.sweep == sweep)
        return {row["model"]: codec.loads(row["entry"]) for row in fetch_all(self._database, query)}

    def get(self, name: str) -> SweepRecord:
        """The sweep with this id, or the `latest`."""
        return _record(_LOOKUP.find(self._database, name))

    def names(self) -> list[str]:
        """The names of all sweeps, each once."""
        return [row["name"] for row in fetch_all(self._database, select(_T.name).distinct())]

    def all(self, name: str | None = None) -> Iterator[SweepRecord]:
        """All sweeps, or those with this name, newest first.

        Each is read when the iterator reaches it: the results of many nights need not fit into memory.
        """
        query = select(_T.id).order_by(_T.number.desc())
        if name is not None:
            query = query.where(_T.name == codec.text(name))
        for row in fetch_all(self._database, query):
            # A sweep that was deleted in the meantime is left out.
            for sweep in fetch_all(self._database, select(tables.sweep).where(_T.id == row["id"])):
                yield _record(sweep)


def _record(row: RowMapping) -> SweepRecord:
    return from_row(SweepRecord, tables.sweep, row)
