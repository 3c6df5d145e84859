"""verify, gc, quota, stats, export and import."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from store_helpers import CHAIN, evaluation, key, pass_run, put, start_run, write_model

from autoopt.errors import InputError
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import ChainRecord, EventRecord, Store, TrialRecord, open_store
from autoopt.store.comparison import canonical
from autoopt.store.files.artifacts import ArtifactLost
from autoopt.store.maintenance.gc import collect
from autoopt.store.maintenance.quota import evict
from autoopt.store.maintenance.stats import stats
from autoopt.store.maintenance.transfer import export_run, import_run
from autoopt.store.maintenance.verify import verify
from autoopt.store.sql.store import SqlStore


def finished_run(store: Store, content: bytes = b"source", *, end: bool = True) -> str:
    """A run of one trial over two passes, `content` -> middle -> last."""
    run = start_run(store, content)
    middle, last = put(store, content + b" middle"), put(store, content + b" last")
    steps = [pass_run(run.model, middle, run=run.id), pass_run(middle, last, "float16", run=run.id)]
    judged = evaluation(last, run=run.id)
    store.results.finish_pass_runs(steps)
    store.results.finish_evaluation(judged)
    trial = TrialRecord(run.id, 0, CHAIN, {"a": {"x": 1}}, outcome=Outcome.OK, candidate=Candidate(last))
    changes = {"pass_runs": tuple(s.key for s in steps), "evaluations": (judged.key,), "metrics": judged.metrics}
    store.trials.finish(TrialRecord(**{**vars(trial), **changes}))
    store.events.add(EventRecord("note", run.id, "x"))
    if end:
        store.runs.finish(run.id, "finished", {"best": {"artifact": last}})
    return run.id


def age(store: SqlStore, seconds: float = 7200.0) -> None:
    """As if nothing had been used for that long."""
    for path in store.files.root.rglob("*"):
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))
    store.files._touched.clear()


def digests(store: Store) -> set[str]:
    return {a.digest for a in store.artifacts.all() if a.present}


# verify


def test_verify_repairs_from_lineage_and_says_what_it_cannot(sqlite_store: SqlStore, tmp_path: Path) -> None:
    run = finished_run(sqlite_store)
    lineage = sqlite_store.lineage.trace_trial(run, 0)
    middle, last = lineage.steps[1].input.artifact, lineage.candidate.artifact
    for digest in (lineage.source, middle):
        shutil.rmtree(sqlite_store.files.folder(digest))
    path = sqlite_store.artifacts.path(last)
    path.unlink()
    path.write_bytes(b"something else")
    found = verify(sqlite_store)
    kinds = {p.digest: p.kind for p in found.problems}
    assert kinds == {lineage.source: "missing", middle: "missing", last: "damaged"}
    assert not found.ok

    def replay(digest: str) -> Path:
        if digest == lineage.source:
            raise InputError("a source model has to be given again")
        return write_model(tmp_path / "again", b"source " + (b"middle" if digest == middle else b"last"))

    repaired = verify(sqlite_store, replay)
    assert {p.digest: p.repaired for p in repaired.problems} == {lineage.source: False, middle: True, last: True}
    assert repaired.problems[0].reason == "a source model has to be given again"
    put(sqlite_store, b"source")
    assert verify(sqlite_store).ok


def test_orphans_are_told_and_are_no_failure(sqlite_store: SqlStore, tmp_path: Path) -> None:
    orphan = sqlite_store.files.put(write_model(tmp_path / "m", b"killed before the commit")).digest
    (sqlite_store.files.root / ".tmp" / "killed while writing").mkdir()
    found = verify(sqlite_store)
    assert found.ok
    assert found.orphans == (orphan, "killed while writing")


# gc


def test_gc_takes_what_nothing_needs(sqlite_store: SqlStore, tmp_path: Path) -> None:
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


def test_gc_of_old_runs_keeps_what_the_kept_ones_share(sqlite_store: SqlStore) -> None:
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


def test_gc_beside_running_work(sqlite_store: SqlStore) -> None:
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


def test_gc_spares_what_is_used_at_the_last_moment(sqlite_store: SqlStore) -> None:
    digest = put(sqlite_store, b"of no use")
    age(sqlite_store)
    assert collect(sqlite_store).artifacts == (digest,)
    sqlite_store.artifacts.path(digest)
    assert collect(sqlite_store, dry_run=False).artifacts == ()


def test_gc_on_both_databases(database_store: SqlStore) -> None:
    finished_run(database_store, b"old")
    new = finished_run(database_store, b"new")
    before = canonical(database_store, new)
    age(database_store)
    assert len(collect(database_store, keep_runs=1, dry_run=False).artifacts) == 3
    assert canonical(database_store, new) == before


# quota


def test_quota_evicts_the_longest_unused_that_can_be_made_again(sqlite_store: SqlStore, tmp_path: Path) -> None:
    first, second = finished_run(sqlite_store, b"first"), finished_run(sqlite_store, b"second")
    middles = [sqlite_store.lineage.trace_trial(r, 0).steps[1].input.artifact for r in (first, second)]
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
    assert len(sqlite_store.lineage.trace_trial(first, 0).steps) == 2
    with pytest.raises(ArtifactLost):
        sqlite_store.artifacts.path(middles[0])
    sqlite_store.artifacts.restorer = lambda *_: write_model(tmp_path / "again", b"first middle")
    assert sqlite_store.artifacts.path(middles[0]).read_bytes() == b"first middle"
    assert sqlite_store.artifacts.get(middles[0]).present


# stats


def test_stats_count_everything(database_store: SqlStore) -> None:
    finished_run(database_store)
    database_store.claims.acquire("pass_run", key("claimed"))
    found = stats(database_store)
    assert found.rows["artifact"] == 3
    assert (found.pass_runs, found.evaluations) == ({"ok": 2, "claimed": 1}, {"ok": 1})
    assert found.artifact_bytes == sum(a.bytes for a in database_store.artifacts.all())
    assert found.database_bytes > 0


# export and import


def test_a_run_goes_to_another_machine_as_it_is(database_store: SqlStore, tmp_path: Path) -> None:
    finished_run(database_store, b"another")
    run = finished_run(database_store)
    export_run(database_store, run[:6], tmp_path / "run.tar")
    with open_store(None, tmp_path / "elsewhere") as other:
        assert import_run(other, tmp_path / "run.tar") == run
        assert import_run(other, tmp_path / "run.tar") == run, "again changes nothing"
        assert canonical(other, run) == canonical(database_store, run)
        assert (len(other.artifacts.all()), len(other.runs.all()), len(other.events.all())) == (3, 1, 1)
        candidate = other.trials.all(run)[0].candidate
        assert other.lineage.trace(candidate or "").source == database_store.runs.get(run).model
        assert other.runs.get(run).created == database_store.runs.get(run).created
        assert other.runs.get(run).owner is None
        assert verify(other).ok


def test_a_run_over_several_targets_travels_with_its_parts(sqlite_store: SqlStore, tmp_path: Path) -> None:
    whole = start_run(sqlite_store, b"a").id
    part = start_run(sqlite_store, b"a", parent=whole).id
    for run in (part, whole):
        sqlite_store.runs.finish(run, "finished", {"best": None})
    export_run(sqlite_store, whole, tmp_path / "whole.tar")
    export_run(sqlite_store, part, tmp_path / "part.tar")
    with open_store(None, tmp_path / "one") as there:
        assert import_run(there, tmp_path / "whole.tar") == whole
        assert [r.id for r in there.runs.all(parent=whole)] == [part]
    with open_store(None, tmp_path / "two") as there:
        assert import_run(there, tmp_path / "part.tar") == part
        assert there.runs.get("latest").parent is None


def test_chains_and_evicted_artifacts_are_exported_too(sqlite_store: SqlStore, tmp_path: Path) -> None:
    source = start_run(sqlite_store).model
    record = sqlite_store.runs.get("latest")
    run = sqlite_store.runs.create(
        type(record)("big", "net", key("big"), source), [ChainRecord(key("c"), "a -> b", points=10**30)]
    )
    export_run(sqlite_store, run.id, tmp_path / "run.tar")
    with open_store(None, tmp_path / "elsewhere") as other:
        import_run(other, tmp_path / "run.tar")
        assert other.runs.chains("big") == sqlite_store.runs.chains("big")


def repack(source: Path, target: Path, rows: dict[str, object] | None = None, **extra: tarfile.TarInfo) -> None:
    """The archive with other rows, artifacts with a flipped byte where `damage`, and extra members."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old.getmembers():
            stream = old.extractfile(member)
            assert stream is not None
            content = stream.read()
            if member.name == "rows.json" and rows is not None:
                content = json.dumps({**json.loads(content), **rows}).encode()
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))
        for member in extra.values():
            new.addfile(member, io.BytesIO(b"x" * member.size))


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    entry.size = 1 if kind == tarfile.REGTYPE else 0
    return entry


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("/absolute"),
        member(f"artifacts/{'0' * 64}/../../../outside"),
        member(f"artifacts/{'0' * 64}/./x"),
        member(f"artifacts/{'0' * 64}/model.onnx"),
        member(f"artifacts/{'0' * 64}/model.onnx", tarfile.SYMTYPE, "/etc/passwd"),
        member(f"artifacts/{'0' * 64}/model.onnx", tarfile.LNKTYPE, "rows.json"),
        member(f"artifacts/{'0' * 64}/model.onnx", tarfile.FIFOTYPE),
        member("artifacts/short/model.onnx"),
    ],
    ids=["parent", "absolute", "climbs", "dot", "wrong bytes", "symlink", "hard link", "fifo", "no digest"],
)
def test_hostile_archives_write_nothing(sqlite_store: SqlStore, tmp_path: Path, bad: tarfile.TarInfo) -> None:
    export_run(sqlite_store, finished_run(sqlite_store), tmp_path / "run.tar")
    repack(tmp_path / "run.tar", tmp_path / "bad.tar", extra=bad)
    home = tmp_path / "elsewhere" / "home"
    with open_store(None, home) as other:
        with pytest.raises(InputError) as error:
            import_run(other, tmp_path / "bad.tar")
        assert "bad.tar" in str(error.value)
        assert other.runs.all() == ()
    assert {p.name for p in (tmp_path / "elsewhere").iterdir()} == {"home"}
    assert {p.name for p in home.iterdir()} <= {"autoopt.db", "autoopt.db-wal", "autoopt.db-shm", "artifacts"}


@pytest.mark.parametrize(
    "rows",
    [
        {"format": 2},
        {"schema": "ffff"},
        {"tables": {}},
        {"tables": {"artifact": [], "sqlite_master": []}},
        {"tables": {"artifact": [], "run": [{"id": 7}]}},
        {"tables": {"artifact": [], "run": [{"unknown": "x"}]}},
        {"tables": {"artifact": [], "run": [{"settings": "{not json"}]}},
        {"tables": {"artifact": [], "run": 5}},
        {"run": "not in it"},
    ],
    ids=str,
)
def test_wrong_rows_are_refused(sqlite_store: SqlStore, tmp_path: Path, rows: dict[str, object]) -> None:
    export_run(sqlite_store, finished_run(sqlite_store), tmp_path / "run.tar")
    repack(tmp_path / "run.tar", tmp_path / "bad.tar", rows)
    with open_store(None, tmp_path / "elsewhere") as other, pytest.raises(InputError):
        import_run(other, tmp_path / "bad.tar")


def test_what_is_no_archive_is_refused(sqlite_store: SqlStore, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for name in ("text", "nothing"):
        with pytest.raises(InputError, match="not a run exported by autoopt"):
            import_run(sqlite_store, tmp_path / name)
