"""A limit on the bytes of artifacts: the least recently used of those that can be made again are evicted first.

Their rows stay: lineage still shows how they were made, and asking for one makes it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from autoopt.store.contracts import Store
from autoopt.store.maintenance.references import chosen, idle, idle_weights, reproducible, shared_copies
from autoopt.store.sql import tables
from autoopt.store.sql.rows import batches
from autoopt.store.sql.store import SqlStore, require_sql


@dataclass(frozen=True)
class EvictionResult:
    """The artifacts that were evicted, or would be in a dry run."""

    dry_run: bool
    artifacts: tuple[str, ...]
    bytes: int
    """The bytes that were freed."""
    left: int
    """The bytes of all other artifacts."""


def evict(store: Store, limit: int, *, dry_run: bool = True) -> EvictionResult:
    """Bring the artifacts down to `limit` bytes as far as possible.

    Source models, artifacts that a result names and artifacts in use stay in any case.
    """
    sql = require_sql(store)
    shared = shared_copies(sql)
    with sql.files.exclusive():
        sizes, candidates = sql.database.read(lambda connection: _candidates(sql, connection, shared))
        usage = DiskUsage(sql, sizes)
        before = usage.bytes
        evicted = []
        for digest in candidates:
            if usage.bytes <= limit:
                break
            evicted.append(digest)
            usage.remove(digest)
        if not dry_run:
            _mark_absent(sql, evicted)
            for digest in evicted:
                sql.files.remove(digest)
            for path in idle_weights(sql, ()):
                path.unlink()
    if sql.remote is not None and not dry_run:
        for digest in evicted:
            sql.remote.remove(digest)
    return EvictionResult(dry_run, tuple(evicted), before - usage.bytes, usage.bytes)


class DiskUsage:
    """The bytes of artifacts; split ones may have weights in common."""

    def __init__(self, store: SqlStore, sizes: Mapping[str, int]) -> None:
        """Add up artifacts, which would have these sizes alone."""
        self._own = dict(sizes)
        self._weights: dict[str, Mapping[str, int]] = {}
        self._users: Counter[str] = Counter()
        for digest in sizes:
            weights = self._weights[digest] = store.files.weights(digest)
            self._users.update(weights.keys())
            if weights:
                self._own[digest] = store.files.bytes_beside_weights(digest)
        each_once = {name: size for weights in self._weights.values() for name, size in weights.items()}
        self.bytes = sum(self._own.values()) + sum(each_once.values())

    def remove(self, digest: str) -> None:
        """Subtract an artifact."""
        self.bytes -= self._own[digest]
        for weight, size in self._weights[digest].items():
            self._users[weight] -= 1
            if not self._users[weight]:
                self.bytes -= size


def _candidates(
    store: SqlStore, connection: Connection, shared: Mapping[str, float]
) -> tuple[dict[str, int], list[str]]:
    """The bytes of all present artifacts, and those that may be evicted, the longest unused first."""
    artifact = tables.artifact.c
    sizes: dict[str, int] = {}
    for row in connection.execute(select(artifact.digest, artifact.bytes).where(artifact.present == 1)):
        sizes[row.digest] = row.bytes
    free = (reproducible(connection) - chosen(connection)) & sizes.keys()
    seconds = idle(store, connection, free, shared)
    return sizes, sorted(seconds, key=lambda digest: (-seconds[digest], digest))


def _mark_absent(store: SqlStore, digests: Sequence[str]) -> None:
    def work(connection: Connection) -> None:
        for batch in batches(digests):
            connection.execute(update(tables.artifact).where(tables.artifact.c.digest.in_(batch)).values(present=0))

    store.database.write(work)
