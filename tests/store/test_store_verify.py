"""The condition of a store: statistics, and artifacts compared with their digests."""

from __future__ import annotations

import shutil
from pathlib import Path

from store_helpers import finished_run, key, put, steps_of, write_model

from autoopt.errors import InputError
from autoopt.store import Store
from autoopt.store.verify import stats, verify


def test_repair_restores_all_but_sources_and_gives_the_reason(sqlite_store: Store, tmp_path: Path) -> None:
    run = finished_run(sqlite_store)
    source, middle = (step.input.artifact for step in steps_of(sqlite_store, run))
    last = put(sqlite_store, b"source last")
    for digest in (source, middle):
        shutil.rmtree(sqlite_store.files.folder(digest))
    path = sqlite_store.artifacts.path(last)
    path.unlink()
    path.write_bytes(b"something else")
    found = verify(sqlite_store)
    kinds = {p.digest: p.kind for p in found.problems}
    assert kinds == {source: "missing", middle: "missing", last: "damaged"}
    assert not found.ok

    def replay(digest: str) -> Path:
        if digest == source:
            raise InputError("a source model has to be given again")
        return write_model(tmp_path / "again", b"source " + (b"middle" if digest == middle else b"last"))

    repaired = verify(sqlite_store, replay)
    assert {p.digest: p.repaired for p in repaired.problems} == {source: False, middle: True, last: True}
    assert repaired.problems[0].reason == "a source model has to be given again"
    put(sqlite_store, b"source")
    assert verify(sqlite_store).ok


def test_orphans_are_listed_but_are_no_problem(sqlite_store: Store, tmp_path: Path) -> None:
    orphan = sqlite_store.files.put(write_model(tmp_path / "m", b"killed before the commit")).digest
    (sqlite_store.files.root / ".tmp" / "killed while writing").mkdir()
    found = verify(sqlite_store)
    assert found.ok
    assert found.orphans == (orphan, "killed while writing")


def test_stats_count_rows_outcomes_and_bytes(database_store: Store) -> None:
    finished_run(database_store)
    database_store.claims.acquire("pass_run", key("claimed"))
    found = stats(database_store)
    assert found.rows["artifact"] == 3
    assert (found.pass_runs, found.evaluations) == ({"ok": 2, "claimed": 1}, {"ok": 1})
    assert found.artifact_bytes == sum(a.bytes for a in database_store.artifacts.all())
    assert found.disk_bytes == found.artifact_bytes, "small models share nothing"
    assert found.database_bytes > 0
