"""The condition of a store: its statistics, and every artifact compared with its digest."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from sqlalchemy import Connection, Table, func, select

from autoopt.errors import AutooptError, one_line
from autoopt.store.records import ArtifactRecord, Restorer
from autoopt.store.sql import tables
from autoopt.store.sql.tables import SCHEMA, check_tables, metadata
from autoopt.store.store import Store


@dataclass(frozen=True)
class ArtifactProblem:
    """An artifact that is missing or damaged."""

    digest: str
    kind: Literal["missing", "damaged"]
    repaired: bool = False
    reason: str = ""
    """The reason why it could not be repaired."""


@dataclass(frozen=True)
class Verification:
    """The findings of a verification."""

    checked: int
    problems: tuple[ArtifactProblem, ...]
    orphans: tuple[str, ...]
    """Artifact folders without a row, and leftovers of killed writers: harmless, garbage collection removes them."""

    @property
    def ok(self) -> bool:
        """True if all artifacts that should exist do now."""
        return all(problem.repaired for problem in self.problems)

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "ok": self.ok}


def verify(store: Store, repair: Restorer | None = None) -> Verification:
    """Check the bytes of every artifact; what `repair` makes again counts only if it has the same digest.

    Raises:
        InputError: The database lacks a table.
    """
    check_tables(store.database)
    records = store.artifacts.all()
    problems = []
    for record in records:
        if not _is_whole(store, record):
            kind: Literal["missing", "damaged"] = "damaged" if store.files.exists(record.digest) else "missing"
            problems.append(ArtifactProblem(record.digest, kind))
    if repair is not None:
        problems = _repair_all(store, problems, repair)
    folders = store.files.digests() - {record.digest for record in records}
    leftovers = [path.name for path in store.files.leftovers()]
    return Verification(len(records), tuple(problems), (*sorted(folders), *sorted(leftovers)))


def _is_whole(store: Store, record: ArtifactRecord) -> bool:
    """True if the files are intact on this machine, or absent here and intact where machines share artifacts."""
    if store.files.is_intact(record.digest):
        return True
    if store.files.exists(record.digest):
        return False
    copy = store.artifacts.fetch(record.digest)
    if copy is None:
        return False
    shutil.rmtree(copy, ignore_errors=True)
    return True


def _repair_all(store: Store, problems: Sequence[ArtifactProblem], repair: Restorer) -> list[ArtifactProblem]:
    # The nearest to the source first: the others are made from them.
    nearest_first = sorted(problems, key=lambda problem: len(store.lineage.trace(problem.digest).steps))
    attempts = [_repaired(store, problem, repair) for problem in nearest_first]
    for index, problem in enumerate(attempts):
        if not problem.repaired and store.files.is_intact(problem.digest):  # by what another model shares with it
            attempts[index] = replace(problem, repaired=True, reason="")
    return attempts


def _repaired(store: Store, problem: ArtifactProblem, repair: Restorer) -> ArtifactProblem:
    try:
        if store.files.is_intact(problem.digest):  # another one has brought back their common weights
            return replace(problem, repaired=True)
        copy = store.artifacts.fetch(problem.digest)
        folder = copy or repair(problem.digest)
        store.artifacts.put_back(problem.digest, folder, replace_remote=copy is None)
    except (AutooptError, OSError) as error:
        return replace(problem, reason=one_line(str(error)))
    return replace(problem, repaired=True)


@dataclass(frozen=True)
class Stats:
    """Numbers of rows and bytes."""

    database: str
    schema: int
    rows: dict[str, int]
    """Rows by table."""
    pass_runs: dict[str, int]
    """Pass runs by outcome; `claimed` is without one."""
    evaluations: dict[str, int]
    """Evaluations by outcome."""
    artifact_bytes: int
    """Bytes of all artifacts, without sharing between them."""
    disk_bytes: int
    """Bytes of their files; large models share files of equal weights."""
    database_bytes: int


def stats(store: Store) -> Stats:
    """Count the rows and bytes of a store."""
    artifact = tables.artifact.c

    def work(connection: Connection) -> Stats:
        rows = {}
        for table in metadata.sorted_tables:
            rows[table.name] = connection.execute(select(func.count()).select_from(table)).scalar_one()
        sizes = {row.digest: row.bytes for row in connection.execute(select(artifact.digest, artifact.bytes))}
        disk_bytes, weights = 0, dict[str, int]()  # weights that several artifacts have count once
        for digest, size in sizes.items():
            shared = store.files.weights(digest)
            weights.update(shared)
            disk_bytes += store.files.bytes_beside_weights(digest) if shared else size
        return Stats(
            database=store.safe_url,
            schema=SCHEMA,
            rows=rows,
            pass_runs=_count_by_outcome(connection, tables.pass_run),
            evaluations=_count_by_outcome(connection, tables.evaluation),
            artifact_bytes=sum(sizes.values()),
            disk_bytes=disk_bytes + sum(weights.values()),
            database_bytes=_database_bytes(connection),
        )

    return store.database.read(work)


def _count_by_outcome(connection: Connection, table: Table) -> dict[str, int]:
    outcome = func.coalesce(table.c.outcome, "claimed")
    return {row[0]: row[1] for row in connection.execute(select(outcome, func.count()).group_by(outcome))}


def _database_bytes(connection: Connection) -> int:
    if connection.dialect.name == "postgresql":
        return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    return int(pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one())
