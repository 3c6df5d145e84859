"""Garbage collection: old runs on request, unreferenced artifacts, leftovers of killed writers.

Safe beside running work: artifacts in use stay, because the row that needs them may be about to be written.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Column, Connection, delete, select

from autoopt.store.maintenance.references import (
    GRACE,
    idle,
    idle_weights,
    referenced,
    released_runs,
    shared_copies,
    users_of_parts,
)
from autoopt.store.records import is_run_abandoned
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import batches
from autoopt.store.sql.runs import delete_run
from autoopt.store.store import Store
from autoopt.working_folder import (
    EXPORTED,
    READINGS,
    RECORDINGS,
    STORE_WORK,
    abandoned_folders,
    working_folders,
)

UNTOUCHED_SECONDS: Final = 7 * 86400.0
"""A recording is removed after this time, and a working folder if nobody can tell whether its owner lives."""


@dataclass(frozen=True)
class CollectionResult:
    """The things that were removed, or would be in a dry run."""

    dry_run: bool
    runs: tuple[str, ...]
    artifacts: tuple[str, ...]
    leftovers: tuple[str, ...]
    bytes: int
    """The size of the files."""
    recent: int = 0
    """Unused artifacts that stay because somebody used them lately, see `idle`."""


@dataclass(frozen=True)
class _Rows:
    """The rows that were removed: ids of runs and digests of artifacts."""

    runs: tuple[str, ...]
    digests: frozenset[str]
    recent: int


class _DryRun(Exception):
    """Carries the result out of a transaction that is rolled back."""

    def __init__(self, rows: _Rows) -> None:
        self.rows = rows


def collect(store: Store, *, dry_run: bool = True, keep_runs: int | None = None) -> CollectionResult:
    """Remove everything that no kept run needs. Runs under way are always kept.

    Args:
        store: The store.
        dry_run: Remove nothing.
        keep_runs: Number of the newest ended runs to keep, by default all. Runs of releases always stay.
    """
    shared = shared_copies(store)
    with store.files.exclusive():
        rows = _collect_rows(store, dry_run, keep_runs, shared)
        digests = sorted(rows.digests)
        places = [path for digest in digests for path in store.files.places(digest)]
        weights = idle_weights(store, rows.digests)
        leftovers = _old_leftovers(store)
        size = _bytes_in([*places, *weights, *leftovers])
        if not dry_run:
            for digest in digests:
                store.files.remove(digest)
            for path in weights:
                path.unlink()
    if not dry_run:
        if store.remote is not None:
            for digest in rows.digests & shared.keys():
                store.remote.remove(digest)
        for path in leftovers:
            _remove(path)
    names = tuple(path.name for path in leftovers)
    return CollectionResult(dry_run, rows.runs, tuple(digests), names, size, rows.recent)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _old_leftovers(store: Store) -> list[Path]:
    """Files that interrupted work left behind: their owner has ended, or nobody has touched them for a while."""
    work = store.home / STORE_WORK
    abandoned: set[Path] = set()
    sources = [store.home / name for name in ("downloads", "unpacked", EXPORTED)]
    for parent in (work, *sources, Path(tempfile.gettempdir())):
        abandoned.update(abandoned_folders(parent))
    cached = [path for name in (RECORDINGS, READINGS, EXPORTED) for path in (store.home / name).glob("*")]
    for paths, limit in ((store.files.leftovers(), GRACE), ([*working_folders(work), *cached], UNTOUCHED_SECONDS)):
        idle_seconds = store.files.idle_seconds(paths)
        abandoned.update(path for path, seconds in idle_seconds.items() if seconds >= limit)
    return sorted(abandoned)


def _collect_rows(store: Store, dry_run: bool, keep_runs: int | None, shared: Mapping[str, float]) -> _Rows:
    """Delete rows in one transaction, rolled back in a dry run."""

    def work(connection: Connection) -> _Rows:
        runs: list[str] = []
        if keep_runs is not None:
            runs = _delete_runs(connection, _ended_runs(store.database, connection)[keep_runs:])
        stored = set(connection.execute(select(tables.artifact.c.digest)).scalars())
        unreferenced = (stored | store.files.digests() | shared.keys()) - referenced(connection)
        digests = set(idle(store, connection, unreferenced, shared))
        for batch in batches(sorted(digests)):
            connection.execute(delete(tables.model).where(tables.model.c.artifact.in_(batch)))
            connection.execute(delete(tables.artifact).where(tables.artifact.c.digest.in_(batch)))
        for table in (tables.pass_run, tables.evaluation):  # claims that nobody will finish
            claim = table.c
            connection.execute(delete(table).where(claim.outcome.is_(None), claim.lease <= store.database.now))
        _delete_unnamed(connection, tables.plan.c.digest, [tables.run.c.plan])
        environments = [tables.pass_run.c.environment, tables.evaluation.c.environment]
        _delete_unnamed(connection, tables.environment.c.digest, environments)
        rows = _Rows(tuple(runs), frozenset(digests), len(unreferenced) - len(digests))
        if dry_run:
            raise _DryRun(rows)
        return rows

    try:
        return store.database.write(work)
    except _DryRun as dry:
        return dry.rows


def _ended_runs(database: Database, connection: Connection) -> list[str]:
    """The runs that are not under way, newest first, without the parts of others."""
    run = tables.run.c
    query = select(run.id, run.status, run.lease, run.owner, database.now.label("now")).order_by(run.number.desc())
    rows = connection.execute(query.where(run.parent.is_(None)))
    return [row.id for row in rows if row.status != "running" or is_run_abandoned(row.lease, row.owner, row.now)]


def _delete_runs(connection: Connection, old: list[str]) -> list[str]:
    """Delete runs, except released ones and parts of other runs; returns the deleted ones."""
    released = released_runs(connection)
    old = [run for run in old if run not in released]
    heirs: dict[str, str] = {}
    for part, users in users_of_parts(connection).items():
        remaining = [user for user in users if user not in old]
        if remaining:
            heirs[part] = remaining[0]
    deleted = [run for run in old if run not in heirs]
    for run in deleted:
        delete_run(connection, run, heirs)
    return deleted


def _delete_unnamed(connection: Connection, column: Column[str], references: list[Column[str]]) -> None:
    conditions = [column.not_in(select(reference).where(reference.is_not(None))) for reference in references]
    connection.execute(delete(column.table).where(*conditions))


def _bytes_in(paths: Iterable[Path]) -> int:
    files = [file for path in paths for file in (path, *path.rglob("*")) if file.is_file()]
    return sum(path.lstat().st_size for path in files)
