"""Garbage collection."""

from __future__ import annotations

import os
from pathlib import Path

from run_comparison import canonical
from store_helpers import age, digests, finish_all, finished_run, pass_run, put, start_run, trial, write_model

from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.owner import this_process
from autoopt.store import Store
from autoopt.store.gc import collect
from autoopt.store.verify import verify
from autoopt.working_folder import OWNER_FILE, READINGS, STORE_WORK, make_working_folder, working_folders


def test_gc_removes_only_unneeded_artifacts(sqlite_store: Store, tmp_path: Path) -> None:
    finished_run(sqlite_store)
    needed = digests(sqlite_store)
    unneeded = put(sqlite_store, b"of no use")
    orphan = sqlite_store.files.put(write_model(tmp_path / "m", b"orphan")).digest
    (sqlite_store.files.root / ".tmp" / "left").mkdir()
    early = collect(sqlite_store, dry_run=False)
    assert (early.artifacts, early.recent) == ((), 2), "all of it was just used"
    age(sqlite_store)
    dry = collect(sqlite_store)
    assert (set(dry.artifacts), dry.recent) == ({unneeded, orphan}, 0)
    assert "left" in dry.leftovers
    assert digests(sqlite_store) == needed | {unneeded}
    done = collect(sqlite_store, dry_run=False)
    assert (done.artifacts, done.bytes) == (dry.artifacts, dry.bytes)
    assert digests(sqlite_store) == needed
    assert verify(sqlite_store).orphans == ()
    assert verify(sqlite_store).ok


def test_gc_removes_the_working_folders_of_ended_runs(sqlite_store: Store) -> None:
    work = sqlite_store.home / STORE_WORK
    ours, unknown, dead = make_working_folder(work), make_working_folder(work), make_working_folder(work)
    (unknown / OWNER_FILE).write_text("elsewhere.12345678/boot/1/1/1")
    (dead / OWNER_FILE).write_text(this_process().rpartition("/")[0] + "/1")
    collect(sqlite_store)
    assert set(working_folders(work)) == {ours, unknown, dead}, "a dry run changes nothing"
    collect(sqlite_store, dry_run=False)
    assert set(working_folders(work)) == {ours, unknown}
    for path in (unknown, *unknown.iterdir()):
        os.utime(path, (0, 0))
    collect(sqlite_store, dry_run=False)
    assert working_folders(work) == [ours]


def test_gc_removes_what_nobody_read_for_a_week(sqlite_store: Store) -> None:
    recent, old = (sqlite_store.home / READINGS / name for name in ("recent", "old"))
    for folder in (recent, old):
        folder.mkdir(parents=True)
        (folder / "set.npz").write_bytes(bytes(1000))
    for path in (old / "set.npz", old):
        os.utime(path, (0, 0))
    assert collect(sqlite_store, dry_run=False).leftovers == ("old",)
    assert (recent.exists(), old.exists()) == (True, False)


def test_gc_removes_what_killed_downloads_left(sqlite_store: Store) -> None:
    cache = sqlite_store.home / "downloads"
    dead = make_working_folder(cache)
    (dead / OWNER_FILE).write_text(this_process().rpartition("/")[0] + "/1")
    collect(sqlite_store, dry_run=False)
    assert working_folders(cache) == []


def test_gc_of_old_runs_keeps_shared_results(sqlite_store: Store) -> None:
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


def test_gc_of_a_run_removes_its_parts(database_store: Store) -> None:
    whole = start_run(database_store)
    parts = [start_run(database_store, parent=whole.id), start_run(database_store, parent=whole.id)]
    assert database_store.runs.get("latest").id == whole.id
    for run in (*parts, whole):
        database_store.runs.finish(run.id)
    assert collect(database_store, keep_runs=0, dry_run=False).runs == (whole.id,)
    assert database_store.runs.all() == ()


def test_gc_keeps_the_parts_that_newer_runs_have_taken_over(database_store: Store) -> None:
    store = database_store
    alone, first = start_run(store), start_run(store)
    part, unused = start_run(store, parent=first.id), start_run(store, parent=first.id)
    second, third = start_run(store), start_run(store)
    for run in (alone, part, unused):
        store.runs.finish(run.id)
    for run in (first, second, third):
        store.runs.finish(run.id, "finished", {"parts": [{"run": part.id}], "targets": [{"run": alone.id}]})
    assert set(collect(store, keep_runs=1, dry_run=False).runs) == {first.id, second.id}
    assert {run.id: run.parent for run in store.runs.all()} == {third.id: None, part.id: third.id, alone.id: None}
    assert set(collect(store, keep_runs=0, dry_run=False).runs) == {third.id, alone.id}
    assert store.runs.all() == ()


def test_gc_of_a_run_keeps_the_results_that_others_use(database_store: Store) -> None:
    store = database_store
    old, new = start_run(store), start_run(store)
    made = put(store, b"made")
    shared, own = pass_run(old.model, made, run=old.id), pass_run(old.model, made, "other", run=old.id)
    finish_all(store, shared, own)
    for run, keys in ((old, (shared.key, own.key)), (new, (shared.key,))):
        store.trials.finish(trial(run.id, 0, outcome=Outcome.OK, candidate=Candidate(made), pass_runs=keys))
        store.runs.finish(run.id)
    assert collect(store, keep_runs=1, dry_run=False).runs == (old.id,)
    assert [run.id for run in store.runs.all()] == [new.id]
    assert store.results.pass_run(shared.key) is not None
    assert store.results.pass_run(own.key) is None
    assert store.trials.all(old.id) == ()


def test_gc_spares_artifacts_of_runs_under_way(sqlite_store: Store) -> None:
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


def test_gc_spares_artifacts_in_use(sqlite_store: Store) -> None:
    digest = put(sqlite_store, b"of no use")
    age(sqlite_store)
    assert collect(sqlite_store).artifacts == (digest,)
    sqlite_store.artifacts.path(digest)
    assert collect(sqlite_store, dry_run=False).artifacts == ()


def test_gc_works_in_every_database(database_store: Store) -> None:
    finished_run(database_store, b"old")
    new = finished_run(database_store, b"new")
    before = canonical(database_store, new)
    age(database_store)
    assert len(collect(database_store, keep_runs=1, dry_run=False).artifacts) == 3
    assert canonical(database_store, new) == before
