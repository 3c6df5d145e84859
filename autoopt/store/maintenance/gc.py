"""Taking away what nothing needs: old runs where asked for, unreferenced artifacts, leftovers of killed writers.

Safe beside running work: what was used or written within `GRACE` seconds, or since the oldest run under way began,
stays whatever the rows say, as its row may be about to be written.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, select

from autoopt.store.contracts import Store
from autoopt.store.leases import is_run_abandoned
from autoopt.store.maintenance.references import living_since, referenced
from autoopt.store.sql import tables
from autoopt.store.sql.deletion import delete_run_rows
from autoopt.store.sql.rows import batches
from autoopt.store.sql.store import SqlStore, require_sql

GRACE: Final = 3600.0
"""Seconds since its last use for which an artifact stays in any case."""
MARGIN: Final = 600.0
"""Seconds before the oldest run under way began that count as its own: it was set up then."""


@dataclass(frozen=True)
class Collected:
    """What was taken away, or would be in a dry run. `bytes` is that of the files."""

    dry_run: bool
    runs: tuple[str, ...]
    artifacts: tuple[str, ...]
    leftovers: tuple[str, ...]
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _DryRun(Exception):
    """Carries the answer out of a transaction that is rolled back."""

    def __init__(self, runs: list[str], digests: set[str]) -> None:
        self.answer = (runs, digests)


def collect(store: Store, *, dry_run: bool = True, keep_runs: int | None = None) -> Collected:
    """Take away what no kept run needs.

    Args:
        keep_runs: how many of the newest ended runs are kept; all where not given. Runs under way are always kept.
    """
    sql = require_sql(store)
    shared = sql.remote.written() if sql.remote else {}
    with sql.files.alone():
        runs, digests = _rows(sql, dry_run, keep_runs, shared)
        folders = [sql.files.folder(d) for d in sorted(digests) if sql.files.folder(d).is_dir()]
        leftovers = [path for path, idle in sql.files.idle(sql.files.leftovers()).items() if idle >= GRACE]
        size = sum(_bytes(path) for path in [*folders, *leftovers])
        if not dry_run:
            for digest in digests:
                sql.files.remove(digest)
    if not dry_run:
        if sql.remote is not None:
            for digest in digests & set(shared):
                sql.remote.remove(digest)
        for path in leftovers:
            shutil.rmtree(path, ignore_errors=True)
    return Collected(dry_run, tuple(runs), tuple(sorted(digests)), tuple(p.name for p in leftovers), size)


def _rows(
    sql: SqlStore, dry_run: bool, keep_runs: int | None, shared: Mapping[str, float]
) -> tuple[list[str], set[str]]:
    """Delete rows in one transaction (rolled back in a dry run); the runs and artifacts that went. `shared`: when the
    artifacts that machines share were last wanted."""

    def work(connection: Connection) -> tuple[list[str], set[str]]:
        runs = _old_runs(sql, connection, keep_runs)
        for run in runs:
            delete_run_rows(connection, run)
        age = living_since(connection, sql.database)
        limit = max(GRACE, age + MARGIN) if age else GRACE
        now = connection.execute(select(sql.database.now)).scalar_one()
        artifact = tables.artifact.c
        made = {row.digest: row.created for row in connection.execute(select(artifact.digest, artifact.created))}
        free = (set(made) | sql.files.digests() | set(shared)) - referenced(connection)
        free = {digest for digest, seconds in idle(sql, free, now, made, shared).items() if seconds >= limit}
        _delete_rows(sql, connection, free)
        if dry_run:
            raise _DryRun(runs, free)
        return runs, free

    try:
        return sql.database.write(work)
    except _DryRun as told:
        return told.answer


def idle(
    sql: SqlStore, digests: Set[str], now: float, made: Mapping[str, float], shared: Mapping[str, float]
) -> dict[str, float]:
    """Seconds since each artifact was last used on this machine or wanted by another one; since its row was written,
    where it is at neither place."""
    here = {path.name: seconds for path, seconds in sql.files.idle(sql.files.folder(d) for d in digests).items()}
    there = {digest: now - time for digest, time in shared.items()}
    return {
        d: min(here.get(d, math.inf), there.get(d, math.inf if d in here else now - made.get(d, now))) for d in digests
    }


def _old_runs(sql: SqlStore, connection: Connection, keep: int | None) -> list[str]:
    if keep is None:
        return []
    run = tables.run.c
    query = select(run.id, run.status, run.lease, run.owner, sql.database.now.label("now")).order_by(run.number.desc())
    query = query.where(run.parent.is_(None))  # parts go with the whole
    ended = [
        r.id for r in connection.execute(query) if r.status != "running" or is_run_abandoned(r.lease, r.owner, r.now)
    ]
    return ended[keep:]


def _delete_rows(sql: SqlStore, connection: Connection, digests: set[str]) -> None:
    for batch in batches(sorted(digests)):
        connection.execute(delete(tables.model).where(tables.model.c.artifact.in_(batch)))
        connection.execute(delete(tables.artifact).where(tables.artifact.c.digest.in_(batch)))
    for work in (tables.pass_run, tables.evaluation):  # claims that nobody will finish
        connection.execute(delete(work).where(work.c.outcome.is_(None), work.c.lease <= sql.database.now))
    _delete_unused(connection, tables.chain, "plan", [(tables.run, "plan")])
    _delete_unused(connection, tables.plan, "digest", [(tables.run, "plan")])
    uses = [(tables.pass_run, "environment"), (tables.evaluation, "environment")]
    _delete_unused(connection, tables.environment, "digest", uses)


def _delete_unused(connection: Connection, table: Table, column: str, uses: list[tuple[Table, str]]) -> None:
    unused = [table.c[column].not_in(select(u.c[name]).where(u.c[name].is_not(None))) for u, name in uses]
    connection.execute(delete(table).where(*unused))


def _bytes(path: Path) -> int:
    return sum(p.lstat().st_size for p in path.rglob("*") if p.is_file())
