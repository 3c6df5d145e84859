"""A limit on the bytes of artifacts: the least recently used that can be made again go first.

Their rows stay: lineage still tells how they came to be, and asking for one makes it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, select, update

from autoopt.store.contracts import Store
from autoopt.store.maintenance.gc import GRACE, MARGIN, idle
from autoopt.store.maintenance.references import chosen, living_since, recomputable, sources
from autoopt.store.sql import tables
from autoopt.store.sql.rows import batches
from autoopt.store.sql.store import SqlStore, require_sql


@dataclass(frozen=True)
class Evicted:
    """What was evicted (or would be) and how many bytes of artifacts are left."""

    dry_run: bool
    artifacts: tuple[str, ...]
    bytes: int
    left: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def evict(store: Store, limit: int, *, dry_run: bool = True) -> Evicted:
    """Bring the artifacts down to `limit` bytes, as far as that goes.

    Kept in any case: source models, what a run's result names, and what was used within `GRACE` seconds or since the
    oldest run under way began.
    """
    sql = require_sql(store)
    shared = sql.remote.written() if sql.remote else {}
    with sql.files.alone():
        sizes, candidates = sql.database.read(lambda connection: _candidates(sql, connection, shared))
        left, gone = sum(sizes.values()), []
        for digest in candidates:
            if left <= limit:
                break
            gone.append(digest)
            left -= sizes[digest]
        if not dry_run:
            _mark(sql, gone)
            for digest in gone:
                sql.files.remove(digest)
    if sql.remote is not None and not dry_run:
        for digest in gone:
            sql.remote.remove(digest)
    return Evicted(dry_run, tuple(gone), sum(sizes[d] for d in gone), left)


def _candidates(sql: SqlStore, connection: Connection, shared: Mapping[str, float]) -> tuple[dict[str, int], list[str]]:
    """Bytes of all present artifacts, and those that may go, the longest unused first."""
    artifact = tables.artifact.c
    query = select(artifact.digest, artifact.bytes, artifact.created, sql.database.now.label("now"))
    rows = connection.execute(query.where(artifact.present == 1)).all()
    sizes: dict[str, int] = {row.digest: row.bytes for row in rows}
    age = living_since(connection, sql.database)
    limit = max(GRACE, age + MARGIN) if age else GRACE
    free = (recomputable(connection, sources(connection)) - chosen(connection)) & set(sizes)
    now = max((row.now for row in rows), default=0.0)
    since = idle(sql, free, now, {row.digest: row.created for row in rows}, shared)
    return sizes, sorted((d for d, seconds in since.items() if seconds >= limit), key=lambda d: (-since[d], d))


def _mark(sql: SqlStore, digests: Sequence[str]) -> None:
    table = tables.artifact

    def work(connection: Connection) -> None:
        for batch in batches(digests):
            connection.execute(update(table).where(table.c.digest.in_(batch)).values(present=0))

    sql.database.write(work)
