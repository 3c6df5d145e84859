"""The limit on the bytes of artifacts."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_helpers import age, finished_run, steps_of, write_model

from autoopt.store.files.artifacts import ArtifactLost
from autoopt.store.maintenance.quota import evict
from autoopt.store.maintenance.verify import verify
from autoopt.store.sql.store import SqlStore


def test_eviction_takes_the_longest_unused_reproducible_artifacts(sqlite_store: SqlStore, tmp_path: Path) -> None:
    first, second = finished_run(sqlite_store, b"first"), finished_run(sqlite_store, b"second")
    middles = [steps_of(sqlite_store, run)[1].input.artifact for run in (first, second)]
    size = sum(a.bytes for a in sqlite_store.artifacts.all())
    assert evict(sqlite_store, 0).artifacts == (), "in use"
    age(sqlite_store, 7200.0)
    sqlite_store.artifacts.path(middles[0])
    age(sqlite_store, 7200.0)
    assert evict(sqlite_store, size).artifacts == ()
    assert evict(sqlite_store, size - 1).artifacts == (middles[1],)
    done = evict(sqlite_store, 0, dry_run=False)
    assert set(done.artifacts) == set(middles), "sources and results stay"
    assert done.left == size - done.bytes
    assert verify(sqlite_store).ok
    assert len(sqlite_store.lineage.trace(middles[0]).steps) == 1
    with pytest.raises(ArtifactLost):
        sqlite_store.artifacts.path(middles[0])
    sqlite_store.artifacts.restorer = lambda *_: write_model(tmp_path / "again", b"first middle")
    assert sqlite_store.artifacts.path(middles[0]).read_bytes() == b"first middle"
    assert sqlite_store.artifacts.get(middles[0]).present
