"""Deleting runs, and with them only what no other run uses."""

from __future__ import annotations

from sqlalchemy import Column, Connection, Table, delete, select

from autoopt.errors import InputError
from autoopt.store import codec
from autoopt.store.leases import is_run_abandoned
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import batches


def delete_ended_run(connection: Connection, database: Database, run: str) -> None:
    """Delete a run unless it is still running.

    Raises:
        InputError: The run is still running under a living owner.
    """
    table = tables.run.c
    query = select(table.status, table.owner, table.lease, database.now.label("now")).where(table.id == run)
    row = connection.execute(query).mappings().first()
    if row and row["status"] == "running" and not is_run_abandoned(row["lease"], row["owner"], row["now"]):
        raise InputError(f"run {run!r} is still running", remedy="wait for it, or stop it first")
    delete_run_rows(connection, run)


def delete_run_rows(connection: Connection, run: str) -> None:
    """Delete a run, its parts, trials and events, and the results that no other run's trials name."""
    for part in connection.execute(select(tables.run.c.id).where(tables.run.c.parent == run)).scalars().all():
        delete_run_rows(connection, part)
    _delete_results(connection, run, tables.pass_run, tables.trial.c.pass_runs)
    _delete_results(connection, run, tables.evaluation, tables.trial.c.evaluations)
    connection.execute(delete(tables.run).where(tables.run.c.id == run))


def _delete_results(connection: Connection, run: str, table: Table, keys_of_trial: Column[str]) -> None:
    trial_run = tables.trial.c.run
    keys = set(connection.execute(select(table.c.key).where(table.c.run == run)).scalars())
    for keys_json in connection.execute(select(keys_of_trial).where(trial_run == run)).scalars():
        keys.update(codec.loads(keys_json))
    for keys_json in connection.execute(select(keys_of_trial).where(trial_run != run)).scalars():
        keys.difference_update(codec.loads(keys_json))
    for batch in batches(sorted(keys)):
        connection.execute(delete(table).where(table.c.key.in_(batch)))
