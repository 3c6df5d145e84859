"""Statistics of a store."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Table, func, select

from autoopt.store.sql import tables
from autoopt.store.sql.tables import SCHEMA, metadata
from autoopt.store.store import Store


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
