"""Export and import of runs."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from limited_files import limited_files
from run_comparison import canonical
from store_helpers import finished_run, key, start_run

from autoopt.errors import InputError, SystemFailure
from autoopt.store import ChainRecord, open_store
from autoopt.store.maintenance.transfer import export_run, import_run, with_digest
from autoopt.store.maintenance.verify import verify
from autoopt.store.sql.store import SqlStore
from autoopt.working_folder import working_folders


def repack(source: Path, target: Path, rows: dict[str, object] | None = None, **extra: tarfile.TarInfo) -> None:
    """The archive with other rows, artifacts with a flipped byte where `damage`, and extra members."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old.getmembers():
            stream = old.extractfile(member)
            assert stream is not None
            content = stream.read()
            if member.name == "rows.json" and rows is not None:
                content = json.dumps(with_digest({**json.loads(content), **rows})).encode()
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))
        for member in extra.values():
            new.addfile(member, io.BytesIO(b"x" * member.size))


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    entry.size = 1 if kind == tarfile.REGTYPE else 0
    return entry


def test_an_imported_run_equals_the_exported_one(database_store: SqlStore, tmp_path: Path) -> None:
    finished_run(database_store, b"another")
    run = finished_run(database_store)
    export_run(database_store, run[:6], tmp_path / "run.tar")
    with open_store(None, tmp_path / "elsewhere") as other:
        assert import_run(other, tmp_path / "run.tar", reuse=True) == run
        assert import_run(other, tmp_path / "run.tar", reuse=True) == run, "again changes nothing"
        assert canonical(other, run) == canonical(database_store, run)
        assert (len(other.artifacts.all()), len(other.runs.all()), len(other.events.all())) == (3, 1, 0)
        candidate = other.trials.all(run)[0].candidate
        assert other.lineage.trace(candidate or "").source == database_store.runs.get(run).model
        assert other.runs.get(run).created == database_store.runs.get(run).created
        assert other.runs.get(run).owner is None
        assert verify(other).ok


def test_a_run_over_several_targets_is_exported_with_its_parts(sqlite_store: SqlStore, tmp_path: Path) -> None:
    whole = start_run(sqlite_store, b"a").id
    part = start_run(sqlite_store, b"a", parent=whole).id
    newer = start_run(sqlite_store, b"a").id
    sqlite_store.runs.finish(part, "finished", {"best": None})
    for run in (whole, newer):  # the newer one took over the part
        sqlite_store.runs.finish(run, "finished", {"best": None, "targets": [{"run": part}]})
    export_run(sqlite_store, whole, tmp_path / "whole.tar")
    export_run(sqlite_store, newer, tmp_path / "newer.tar")
    export_run(sqlite_store, part, tmp_path / "part.tar")
    with open_store(None, tmp_path / "one") as there:
        assert import_run(there, tmp_path / "whole.tar") == whole
        assert [r.id for r in there.runs.all(parent=whole)] == [part]
    with open_store(None, tmp_path / "newer") as there:
        assert import_run(there, tmp_path / "newer.tar") == newer
        assert [r.id for r in there.runs.all(parent=newer)] == [part]
    with open_store(None, tmp_path / "two") as there:
        assert import_run(there, tmp_path / "part.tar") == part
        assert there.runs.get("latest").parent is None


def test_chains_and_rows_of_evicted_artifacts_are_exported(sqlite_store: SqlStore, tmp_path: Path) -> None:
    source = start_run(sqlite_store).model
    record = sqlite_store.runs.get("latest")
    run = sqlite_store.runs.create(
        type(record)("big", "net", key("big"), source), [ChainRecord(key("c"), "a -> b", points=10**30)]
    )
    export_run(sqlite_store, run.id, tmp_path / "run.tar")
    with open_store(None, tmp_path / "elsewhere") as other:
        import_run(other, tmp_path / "run.tar")
        assert other.runs.chains("big") == sqlite_store.runs.chains("big")


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
    assert {p.name for p in home.iterdir()} <= {"autoopt.db", "autoopt.db-wal", "autoopt.db-shm", "artifacts", "work"}
    assert working_folders(home / "work") == []


@pytest.mark.parametrize(
    "rows",
    [
        {"format": 3},
        {"schema": "ffff"},
        {"tables": {}},
        {"tables": {"artifact": [], "sqlite_master": []}},
        {"tables": {"artifact": [{"digest": "0" * 64, "files": "{}", "bytes": 2**63, "present": 1}], "run": []}},
        {"tables": {"artifact": [{"files": "{}", "bytes": 1, "present": 1}]}},
        {"tables": {"artifact": [{"digest": None, "files": "{}", "bytes": 1, "present": 1}]}},
        {"tables": {"artifact": [], "evaluation": [{"key": None}], "run": []}},
        {"tables": {"artifact": [], "run": [{"id": 7}]}},
        {"tables": {"artifact": [], "run": [{"unknown": "x"}]}},
        {"tables": {"artifact": [], "run": [{"settings": "{not json"}]}},
        {"tables": {"artifact": [], "run": 5}},
        {"run": "not in it"},
        {"tables": {"artifact": [], "run": [{"settings": "7"}]}},
        {"tables": {"artifact": [], "run": [{"result": "7"}]}},
        {"tables": {"artifact": [], "environment": [{"digest": "0" * 64, "content": "{}"}]}},
        {"tables": {"artifact": [], "plan": [{"digest": "0" * 64, "content": "{}"}]}},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error")
def test_wrong_rows_are_refused(sqlite_store: SqlStore, tmp_path: Path, rows: dict[str, object]) -> None:
    export_run(sqlite_store, finished_run(sqlite_store), tmp_path / "run.tar")
    repack(tmp_path / "run.tar", tmp_path / "bad.tar", rows)
    with open_store(None, tmp_path / "elsewhere") as other, pytest.raises(InputError):
        import_run(other, tmp_path / "bad.tar")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("table", "key"), [("trial", "number"), ("evaluation", "key"), ("metric_value", "metric")])
def test_rows_without_a_key_are_refused(sqlite_store: SqlStore, tmp_path: Path, table: str, key: str) -> None:
    export_run(sqlite_store, finished_run(sqlite_store), tmp_path / "run.tar")
    document = rows_of(tmp_path / "run.tar")
    document["tables"][table][0][key] = None
    repack(tmp_path / "run.tar", tmp_path / "bad.tar", document)
    with (
        open_store(None, tmp_path / "elsewhere") as other,
        pytest.raises(InputError, match=f"table '{table}' lacks the field '{key}'"),
    ):
        import_run(other, tmp_path / "bad.tar")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("run", "created", 1e308),
        ("run", "created", float("nan")),
        ("run", "settings", '{"dag": 7}'),
        ("run", "settings", '{"model": null}'),
        ("run", "settings", '{"search": [7]}'),
        ("run", "settings", '{"target": "cpu"}'),
        ("run", "result", '{"targets": 7}'),
        ("run", "result", '{"parts": [7]}'),
        ("run", "result", '{"targets": [{"run": ["x"]}]}'),
        ("trial", "outcome", "odd"),
        ("trial", "metrics", '{"size": 7}'),
        ("trial", "details", '{"reasons": 7}'),
        ("pass_run", "outcome", "odd"),
        ("pass_run", "outcome", None),
        ("pass_run", "finished", None),
        ("evaluation", "finished", -1.0),
        ("pass_run", "seconds", 1e12),
        ("evaluation", "artifact", None),
        ("evaluation", "candidate", "0" * 64),
        ("pass_run", "input_key", "0" * 64),
        ("pass_run", "output_key", None),
        ("artifact", "files", '{"model.onnx": "large"}'),
    ],
)
def test_values_that_no_view_could_show_are_refused(
    sqlite_store: SqlStore, tmp_path: Path, table: str, column: str, value: object
) -> None:
    export_run(sqlite_store, finished_run(sqlite_store), tmp_path / "run.tar")
    document = rows_of(tmp_path / "run.tar")
    document["tables"][table][0][column] = value
    repack(tmp_path / "run.tar", tmp_path / "bad.tar", document)
    with open_store(None, tmp_path / "elsewhere") as other:
        with pytest.raises(InputError, match=r"bad\.tar: [^\n]+$"):
            import_run(other, tmp_path / "bad.tar")
        assert other.runs.all() == ()
        assert other.artifacts.all() == ()


def test_an_archive_does_not_number_the_rows_of_the_store(sqlite_store: SqlStore, tmp_path: Path) -> None:
    """With the largest number in use, the next run could not have a larger one."""
    with open_store(None, tmp_path / "elsewhere") as other:
        export_run(other, finished_run(other), tmp_path / "run.tar")
    document = rows_of(tmp_path / "run.tar")
    document["tables"]["run"][0] |= {"number": 2**63 - 1, "owner": "somebody", "lease": 1e11}
    repack(tmp_path / "run.tar", tmp_path / "evil.tar", document)
    imported = import_run(sqlite_store, tmp_path / "evil.tar")
    run = finished_run(sqlite_store, b"another")
    assert sqlite_store.runs.get("latest").id == run
    assert sqlite_store.runs.get(imported).owner is None


def rows_of(archive: Path) -> dict[str, Any]:
    with tarfile.open(archive) as opened:
        stream = opened.extractfile("rows.json")
        assert stream is not None
        rows: dict[str, Any] = json.load(stream)
    return rows


def test_an_edit_is_noticed(sqlite_store: SqlStore, tmp_path: Path) -> None:
    export_run(sqlite_store, finished_run(sqlite_store), tmp_path / "run.tar")
    text = (tmp_path / "run.tar").read_bytes()
    assert text.count(b"simplify")
    (tmp_path / "run.tar").write_bytes(text.replace(b"simplify", b"simplefy"))
    with open_store(None, tmp_path / "elsewhere") as other:
        with pytest.raises(InputError, match=r"run\.tar: was edited after autoopt wrote it; export the run again"):
            import_run(other, tmp_path / "run.tar")
        assert other.runs.all() == ()


def test_an_imported_run_is_marked_and_holds_nothing_that_continues_it(sqlite_store: SqlStore, tmp_path: Path) -> None:
    run = finished_run(sqlite_store, end=False)
    export_run(sqlite_store, run, tmp_path / "run.tar")
    rows = rows_of(tmp_path / "run.tar")
    environment = {"user_script": "evil.py", "calibration": {"path": "c.npz", "user_script": "evil.py"}}
    evil = {"request": {"dag": {"user_script": "evil.py"}}, "replay_environment": environment, "model": "net"}
    rows["tables"]["run"][0]["settings"] = json.dumps(evil)
    rows["tables"]["run"][0]["sweep"] = None
    rows["tables"]["event"].append(
        {"id": "e", "time": 0.0, "kind": "death", "run": None, "subject": "x", "content": "{}"}
    )
    repack(tmp_path / "run.tar", tmp_path / "evil.tar", rows)
    with open_store(None, tmp_path / "elsewhere") as other:
        import_run(other, tmp_path / "evil.tar")
        record = other.runs.get(run)
        assert (record.imported, record.teaches) == ("evil.tar", False)
        assert "evil.py" not in json.dumps(dict(record.settings))
        assert (record.status, record.settings["model"]) == ("failed", "net")
        assert "it was running when it was exported" in str(record.result)
        assert other.events.all() == ()


def test_imported_results_answer_no_other_run_unless_asked_for(sqlite_store: SqlStore, tmp_path: Path) -> None:
    run = finished_run(sqlite_store)
    export_run(sqlite_store, run, tmp_path / "run.tar")
    identity = sqlite_store.runs.get(run).identity
    (trial,) = sqlite_store.trials.all(run)
    for reuse in (False, True):
        with open_store(None, tmp_path / f"reuse {reuse}") as other:
            import_run(other, tmp_path / "run.tar", reuse=reuse)
            assert (other.runs.latest_finished(identity) is not None) is reuse
            assert (set(other.results.pass_runs(trial.pass_runs)) == set(trial.pass_runs)) is reuse
            assert (other.results.evaluation(trial.evaluations[0]) is not None) is reuse
            (imported,) = other.trials.all(run)
            assert len(other.results.pass_runs(imported.pass_runs)) == 2
            evaluation = other.results.evaluation(imported.evaluations[0])
            assert evaluation is not None
            assert evaluation.metrics == trial.metrics
            assert imported.candidate is not None
            assert len(other.lineage.trace(imported.candidate).steps) == 2
            assert other.runs.get(run).teaches is reuse


def test_a_run_made_here_stays_as_it_is(sqlite_store: SqlStore, tmp_path: Path) -> None:
    run = finished_run(sqlite_store)
    export_run(sqlite_store, run, tmp_path / "run.tar")
    before = canonical(sqlite_store, run)
    artifact = sqlite_store.artifacts.path(sqlite_store.runs.get(run).model)
    assert import_run(sqlite_store, tmp_path / "run.tar") == run
    assert not sqlite_store.runs.get(run).imported
    assert canonical(sqlite_store, run) == before
    assert artifact.is_file()


def test_a_sparse_file_is_refused_before_a_byte_is_written(sqlite_store: SqlStore, tmp_path: Path) -> None:
    export_run(sqlite_store, finished_run(sqlite_store), tmp_path / "run.tar")
    terabyte = 1 << 40
    huge = member(f"artifacts/{'0' * 64}/model.onnx")
    huge.size = 0
    huge.pax_headers = {
        "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(terabyte),
        "GNU.sparse.numblocks": "0", "GNU.sparse.map": f"{terabyte},0",
    }  # fmt: skip
    repack(tmp_path / "run.tar", tmp_path / "sparse.tar", extra=huge)
    with tarfile.open(tmp_path / "sparse.tar") as archive:
        assert archive.getmembers()[-1].size == terabyte
    with open_store(None, tmp_path / "elsewhere") as other:
        with pytest.raises(InputError, match="has an entry that is larger than the file"):
            import_run(other, tmp_path / "sparse.tar")
        assert other.artifacts.all() == ()


def test_a_file_that_is_not_an_archive_is_refused(sqlite_store: SqlStore, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for name in ("text", "nothing"):
        with pytest.raises(InputError, match="not a run exported by autoopt"):
            import_run(sqlite_store, tmp_path / name)


def test_a_full_disk_is_no_fault_of_the_archive(sqlite_store: SqlStore, tmp_path: Path) -> None:
    run = finished_run(sqlite_store, bytes(100_000))
    archive = tmp_path / "run.tar"
    with limited_files(1000), pytest.raises(InputError, match=r"run\.tar: cannot be written \(File too large\)"):
        export_run(sqlite_store, run, archive)
    assert list(tmp_path.glob("*.tar*")) == list(tmp_path.glob(".*.new")) == []
    export_run(sqlite_store, run, archive)
    refused = pytest.raises(SystemFailure, match=r"run\.tar: cannot be unpacked \(File too large\); free some space")
    with open_store(home=tmp_path / "other") as other, limited_files(1000), refused:
        import_run(other, archive)
