"""The rows of `run` and `plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, RowMapping, Select, Table, delete, select, update

from autoopt.errors import InputError
from autoopt.model.candidate import digest_json
from autoopt.store.records import LEASE_SECONDS, Json, RunRecord, RunStatus, new_id
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import LARGEST, Lookup, batches, dumps, fetch_all, from_row, insert_if_absent, loads, to_row

_T = tables.run.c
_LISTED = _T.parent.is_(None) & ~_T.is_check
"""Runs as users start them: neither parts of others nor checks."""
_LOOKUP = Lookup(tables.run, "id", "run", "'autoopt runs' lists them", newest_by="number", newest_among=_LISTED)


class SqlRuns:
    """Runs with their plans."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def latest_finished(self, identity: str) -> RunRecord | None:
        """The newest finished run with this identity key."""
        return next(iter(self.all(status="finished", identity=identity)), None)

    def create(self, record: RunRecord) -> RunRecord:
        """Store a new run. Its model must have been added before.

        Returns:
            The run as stored: an empty id is filled in, and the default owner is this process with a lease.
        """
        run = record.id or new_id()
        plan = dumps(record.plan)
        plan_digest = digest_json(loads(plan))
        row = {
            **to_row(tables.run, record),
            "id": run,
            "plan": plan_digest,
            "owner": record.owner or self._owner,
            "lease": self._database.now + LEASE_SECONDS,
            "created": self._database.now,
        }

        def work(connection: Connection) -> None:
            plan_row = {"digest": plan_digest, "content": plan, "created": self._database.now}
            insert_if_absent(connection, tables.plan, plan_row)
            insert_if_absent(connection, tables.run, row)

        self._database.write(work)
        stored = self.get(run)
        if stored.identity != record.identity:
            raise InputError(f"there is a run {run!r} already")
        return stored

    def update(self, run: str, result: Json) -> bool:
        """Store the interim result of a run; False if it has ended or belongs to another owner."""
        return self._change_own(run, {"result": dumps(result)})

    def set_seconds(self, run: str, seconds: float) -> None:
        """Store the time that a run has taken so far; does nothing if it has ended or belongs to another owner."""
        self._change_own(run, {"seconds": seconds})

    def _change_own(self, run: str, values: Mapping[str, object]) -> bool:
        """Change a running run of this owner; false if it is none."""
        change = update(tables.run).where(_T.id == run, _T.status == "running", _T.owner == self._owner)
        return self._database.write(lambda connection: connection.execute(change.values(values)).rowcount == 1)

    def finish(self, run: str, status: RunStatus = "finished", result: Json | None = None) -> bool:
        """End a run; False if it has already ended or belongs to another owner."""
        content = None if result is None else dumps(result)
        is_own = _T.owner.is_(None) | (_T.owner == self._owner)
        end = update(tables.run).where(_T.id == run, _T.status == "running", is_own)
        end = end.values(status=status, result=content, owner=self._owner, lease=None, finished=self._database.now)
        # The answer to the first commit may have been lost: the same end again is no refusal.
        same = select(_T.id).where(_T.id == run, _T.owner == self._owner, _T.status == status, _T.result == content)

        def work(connection: Connection) -> bool:
            return connection.execute(end).rowcount == 1 or connection.execute(same).first() is not None

        ended = self._database.write(work)
        self._database.make_durable()
        return ended

    def get(self, name: str) -> RunRecord:
        """The run with this id; `latest` is the newest that is neither a check nor part of another."""
        row = _LOOKUP.find(self._database, name)
        return self._database.read(lambda connection: _records(connection, [row]))[0]

    def all(
        self,
        *,
        status: RunStatus | None = None,
        identity: str | None = None,
        sweep: str | None = None,
        parent: str | None = None,
    ) -> tuple[RunRecord, ...]:
        """The runs that match, newest first. The parts of a run over several targets are runs of their own."""
        query = select(tables.run).order_by(_T.number.desc())
        for column, value in ((_T.status, status), (_T.identity, identity), (_T.sweep, sweep), (_T.parent, parent)):
            if value is not None:
                query = query.where(column == value)

        return self._read(query)

    def newest(self, limit: int) -> tuple[RunRecord, ...]:
        """The newest runs that are neither checks nor parts of others, newest first."""
        query = select(tables.run).where(_LISTED).order_by(_T.number.desc())
        return self._read(query.limit(min(limit, LARGEST)))

    def exists(self, prefix: str) -> bool:
        """True if the id of any run begins with `prefix`."""
        query = select(_T.id).where(_T.id.startswith(prefix, autoescape=True)).limit(1)
        return bool(fetch_all(self._database, query))

    def _read(self, query: Select[Any]) -> tuple[RunRecord, ...]:
        """The records of the rows that a query returns."""

        def work(connection: Connection) -> tuple[RunRecord, ...]:
            return tuple(_records(connection, connection.execute(query).mappings().all()))

        return self._database.read(work)


def _records(connection: Connection, rows: Sequence[RowMapping]) -> list[RunRecord]:
    table = tables.plan
    plans: dict[str, str] = {}
    for batch in batches({row["plan"] for row in rows}):
        for plan in connection.execute(select(table).where(table.c.digest.in_(batch))):
            plans[plan.digest] = plan.content
    records = []
    for row in rows:
        result = loads(row["result"]) or {}
        if not isinstance(result, Mapping):  # written by something else; it hides no other run
            result = {"unreadable": result}
        records.append(from_row(RunRecord, tables.run, row, plan=loads(plans[row["plan"]]), result=result))
    return records


def delete_run(connection: Connection, run: str, heirs: Mapping[str, str]) -> None:
    """Delete a run, its parts and trials, and the results that no other run's trials name.

    Parts that stay, because other runs have taken them over, are the keys of `heirs`, with the run that each belongs to
    then.
    """
    for part in connection.execute(select(_T.id).where(_T.parent == run)).scalars().all():
        if part in heirs:
            connection.execute(update(tables.run).where(_T.id == part).values(parent=heirs[part]))
        else:
            delete_run(connection, part, heirs)
    _delete_results(connection, run, tables.pass_run, tables.trial.c.pass_runs)
    _delete_results(connection, run, tables.evaluation, tables.trial.c.evaluations)
    connection.execute(delete(tables.run).where(_T.id == run))


def _delete_results(connection: Connection, run: str, table: Table, keys_of_trial: Column[str]) -> None:
    trial_run = tables.trial.c.run
    keys = set(connection.execute(select(table.c.key).where(table.c.run == run)).scalars())
    for keys_json in connection.execute(select(keys_of_trial).where(trial_run == run)).scalars():
        keys.update(loads(keys_json))
    for keys_json in connection.execute(select(keys_of_trial).where(trial_run != run)).scalars():
        keys.difference_update(loads(keys_json))
    for batch in batches(sorted(keys)):
        connection.execute(delete(table).where(table.c.key.in_(batch)))
