"""Garbage collection."""

from __future__ import annotations

from pathlib import Path

from store_helpers import age, digests, finished_run, put, write_model

from autoopt.store.comparison import canonical
from autoopt.store.maintenance.gc import collect
from autoopt.store.maintenance.verify import verify
from autoopt.store.sql.store import SqlStore


def test_gc_removes_only_unneeded_artifacts(sqlite_store: SqlStore, tmp_path: Path) -> None:
    finished_run(sqlite_store)
    needed = digests(sqlite_store)
    unneeded = put(sqlite_store, b"of no use")
    orphan = sqlite_store.files.put(write_model(tmp_path / "m", b"orphan")).digest
    (sqlite_store.files.root / ".tmp" / "left").mkdir()
    assert collect(sqlite_store, dry_run=False).artifacts == (), "all of it was just used"
    age(sqlite_store)
    dry = collect(sqlite_store)
    assert set(dry.artifacts) == {unneeded, orphan}
    assert dry.leftovers == ("left",)
    assert digests(sqlite_store) == needed | {unneeded}
    done = collect(sqlite_store, dry_run=False)
    assert (done.artifacts, done.bytes) == (dry.artifacts, dry.bytes)
    assert digests(sqlite_store) == needed
    assert verify(sqlite_store).orphans == ()
    assert verify(sqlite_store).ok


def test_gc_of_old_runs_keeps_shared_results(sqlite_store: SqlStore) -> None:
    old, new = finished_run(sqlite_store, b"old"), finished_run(sqlite_store, b"new")
    kept = canonical(sqlite_store, new)
    shared = finished_run(sqlite_store, b"new")
    age(sqlite_store)
    assert collect(sqlite_store, keep_runs=2).runs == (old,)
    assert len(sqlite_store.runs.all()) == 3, "a dry run changes nothing"
    done = collect(sqlite_store, keep_runs=1, dry_run=False)
    assert set(done.runs) == {old, new}
    assert len(done.artifacts) == 3
    assert canonical(sqlite_store, shared) == kept
    assert verify(sqlite_store).ok


def test_gc_spares_artifacts_of_runs_under_way(sqlite_store: SqlStore) -> None:
    running = finished_run(sqlite_store, b"running", end=False)
    sqlite_store.database.write(lambda c: c.exec_driver_sql("UPDATE run SET created = created - 7000"))
    fresh = put(sqlite_store, b"made by a worker, its pass run not yet written")
    age(sqlite_store, 6000.0)
    assert collect(sqlite_store, dry_run=False, keep_runs=0).runs == ()
    sqlite_store.database.write(lambda c: c.exec_driver_sql("UPDATE run SET lease = 1.0"))
    assert collect(sqlite_store, dry_run=False, keep_runs=0).runs == (), "late, but this process is seen to live"
    assert fresh in digests(sqlite_store), "younger than the run under way"
    sqlite_store.runs.finish(running)
    collect(sqlite_store, dry_run=False)
    assert fresh not in digests(sqlite_store)


def test_gc_spares_artifacts_in_use(sqlite_store: SqlStore) -> None:
    digest = put(sqlite_store, b"of no use")
    age(sqlite_store)
    assert collect(sqlite_store).artifacts == (digest,)
    sqlite_store.artifacts.path(digest)
    assert collect(sqlite_store, dry_run=False).artifacts == ()


def test_gc_works_in_every_database(database_store: SqlStore) -> None:
    finished_run(database_store, b"old")
    new = finished_run(database_store, b"new")
    before = canonical(database_store, new)
    age(database_store)
    assert len(collect(database_store, keep_runs=1, dry_run=False).artifacts) == 3
    assert canonical(database_store, new) == before
