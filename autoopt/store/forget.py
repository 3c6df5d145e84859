"""Forgetting a run, and nothing that another run uses."""

from __future__ import annotations

from sqlalchemy import Connection, Table, delete, select

from autoopt.errors import InputError
from autoopt.store import codec, tables
from autoopt.store.claims import run_abandoned
from autoopt.store.part import Part, batches


class Forgetting(Part):
    """Deleting runs."""

    def delete_run(self, run: str) -> None:
        self.db.write(lambda connection: self._delete_run(connection, run))

    def _delete_run(self, connection: Connection, run: str) -> None:
        table = tables.run.c
        query = select(table.status, table.owner, table.lease, self.db.now.label("now")).where(table.id == run)
        row = connection.execute(query).mappings().first()
        if row and row["status"] == "running" and not run_abandoned(row["lease"], row["owner"], row["now"]):
            raise InputError(f"run {run!r} is still running", remedy="wait for it, or stop it first")
        delete_run_rows(connection, run)


def delete_run_rows(connection: Connection, run: str) -> None:
    """Delete a run with its trials and events, and its pass runs and evaluations that no other run's trials name; and
    likewise its parts for single targets."""
    for part in connection.execute(select(tables.run.c.id).where(tables.run.c.parent == run)).scalars().all():
        delete_run_rows(connection, part)
    used = _used(connection, besides=run)
    for work, column in ((tables.pass_run, "pass_runs"), (tables.evaluation, "evaluations")):
        mine = set(connection.execute(select(work.c.key).where(work.c.run == run)).scalars())
        _delete(connection, work, (mine | _named(connection, run, column)) - used[column])
    connection.execute(delete(tables.run).where(tables.run.c.id == run))


def _named(connection: Connection, run: str, column: str) -> set[str]:
    query = select(tables.trial.c[column]).where(tables.trial.c.run == run)
    return {key for keys in connection.execute(query).scalars() for key in codec.loads(keys)}


def _used(connection: Connection, besides: str) -> dict[str, set[str]]:
    trial = tables.trial.c
    used: dict[str, set[str]] = {"pass_runs": set(), "evaluations": set()}
    for row in connection.execute(select(trial.pass_runs, trial.evaluations).where(trial.run != besides)).mappings():
        for column, keys in used.items():
            keys.update(codec.loads(row[column]))
    return used


def _delete(connection: Connection, table: Table, keys: set[str]) -> None:
    for batch in batches(sorted(keys)):
        connection.execute(delete(table).where(table.c.key.in_(batch)))
