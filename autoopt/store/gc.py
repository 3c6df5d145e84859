"""Garbage collection: old runs on request, artifacts that nothing refers to, leftovers of killed writers.

Safe beside running work: artifacts in use stay, because the row that needs them may be about to be written.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Column, Connection, delete, select

from autoopt.store.records import is_run_abandoned, part_documents
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import batches, loads
from autoopt.store.sql.runs import delete_run
from autoopt.store.store import Store
from autoopt.working_folder import EXPORTED, READINGS, STORE_WORK, abandoned_folders, working_folders

GRACE: Final = 3600.0
"""Seconds since its last use during which an artifact is never removed."""
MARGIN: Final = 600.0
"""Seconds before the start of the oldest run under way that count as its own: it was being set up."""
_DIGEST: Final = re.compile(r"\b[0-9a-f]{64}\b")


def referenced(connection: Connection) -> set[str]:
    """Artifacts that runs, their trials, pass runs and evaluations point to, and those that users were given."""
    run, trial, pass_run, evaluation = tables.run.c, tables.trial.c, tables.pass_run.c, tables.evaluation.c
    columns = (run.model, trial.artifact, pass_run.input_artifact, pass_run.output_artifact, evaluation.artifact)
    digests: set[str] = set()
    for column in columns:
        digests.update(connection.execute(select(column).where(column.is_not(None)).distinct()).scalars())
    for column in (run.result, tables.sweep.c.result):
        for text in connection.execute(select(column).where(column.is_not(None))).scalars():
            digests.update(_DIGEST.findall(text))
    return digests


def users_of_parts(connection: Connection) -> dict[str, list[str]]:
    """The runs whose results name a run as a part, newest first; they may have taken it over from another run."""
    run = tables.run.c
    users: dict[str, list[str]] = {}
    query = select(run.id, run.result).where(run.result.is_not(None)).order_by(run.number.desc())
    for row in connection.execute(query):
        for part in part_documents(loads(row.result)):
            users.setdefault(part["run"], []).append(row.id)
    return users


def idle(store: Store, connection: Connection, digests: Set[str], shared: Mapping[str, float]) -> dict[str, float]:
    """The seconds since their last use of those artifacts that nobody may be about to use.

    An artifact is in use for `GRACE` seconds, and since the start of the oldest run under way. Its last use is that on
    this machine, or a request of another machine for it; the time of its row if its files are at neither place.
    `shared` holds `shared_copies`, listed before the transaction because that may take long.
    """
    artifact, now = tables.artifact.c, connection.execute(select(store.database.now)).scalar_one()
    uses: dict[str, list[float]] = {}
    places = {path: digest for digest in digests for path in store.files.places(digest)}
    for path, seconds in store.files.idle_seconds(places).items():
        uses.setdefault(places[path], []).append(seconds)
    for digest, time in shared.items():
        uses.setdefault(digest, []).append(now - time)
    for row in connection.execute(select(artifact.digest, artifact.created)):
        uses.setdefault(row.digest, [now - row.created])
    limit = max(GRACE, _age_of_oldest_run(store, connection))
    idle_seconds = {digest: min(uses.get(digest, [0.0])) for digest in digests}
    return {digest: seconds for digest, seconds in idle_seconds.items() if seconds >= limit}


def idle_weights(store: Store, removed: Collection[str]) -> list[Path]:
    """The weights that only `removed` artifacts have, and that nobody may be about to use."""
    seconds = store.files.idle_seconds(store.files.unused_weights(removed))
    return [path for path in seconds if seconds[path] >= GRACE]


def shared_copies(store: Store) -> Mapping[str, float]:
    """The artifacts that machines share, with the time at which one last wanted them."""
    return {} if store.remote is None else store.remote.written()


def _age_of_oldest_run(store: Store, connection: Connection) -> float:
    """Seconds since the oldest run under way was being set up; 0 without one."""
    run = tables.run.c
    query = select(run.created, run.lease, run.owner, store.database.now.label("now")).where(run.status == "running")
    oldest = 0.0
    for row in connection.execute(query):
        if not is_run_abandoned(row.lease, row.owner, row.now):
            oldest = max(oldest, row.now - row.created + MARGIN)
    return oldest


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
        names = tuple(path.name for path in leftovers)
        size = _bytes_in([*places, *weights, *leftovers])
        result = CollectionResult(dry_run, rows.runs, tuple(digests), names, size, rows.recent)
        if dry_run:
            return result
        for digest in digests:
            store.files.remove(digest)
        for path in weights:
            path.unlink()
    if store.remote is not None:
        for digest in rows.digests & shared.keys():
            store.remote.remove(digest)
    for path in leftovers:
        _remove(path)
    return result


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
    cached = [path for name in (READINGS, EXPORTED) for path in (store.home / name).glob("*")]
    for paths, limit in ((store.files.leftovers(), GRACE), ([*working_folders(work), *cached], UNTOUCHED_SECONDS)):
        idle_seconds = store.files.idle_seconds(paths)
        abandoned.update(path for path, seconds in idle_seconds.items() if seconds >= limit)
    return sorted(abandoned)


def _collect_rows(store: Store, dry_run: bool, keep_runs: int | None, shared: Mapping[str, float]) -> _Rows:
    """Delete rows in one transaction, rolled back in a dry run."""

    def work(connection: Connection) -> _Rows:
        changes = connection.begin_nested()
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
        if dry_run:
            changes.rollback()
        else:
            changes.commit()
        return _Rows(tuple(runs), frozenset(digests), len(unreferenced) - len(digests))

    return store.database.write(work)


def _ended_runs(database: Database, connection: Connection) -> list[str]:
    """The runs that are not under way, newest first, without the parts of others."""
    run = tables.run.c
    query = select(run.id, run.status, run.lease, run.owner, database.now.label("now")).order_by(run.number.desc())
    rows = connection.execute(query.where(run.parent.is_(None)))
    return [row.id for row in rows if row.status != "running" or is_run_abandoned(row.lease, row.owner, row.now)]


def _delete_runs(connection: Connection, old: list[str]) -> list[str]:
    """Delete runs, except released ones and parts of other runs; returns the deleted ones."""
    # A rollback can publish each release again.
    released = set(connection.execute(select(tables.release_step.c.run)).scalars())
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
