import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autoopt.cli.store import parse_size
from autoopt.errors import InputError
from autoopt.results import RunResult
from autoopt.settings import settings
from autoopt.store import RunRecord, open_store


def test_verify_tells_a_damaged_artifact(call: Callable[..., Any], filled: dict[str, Any], home: Path) -> None:
    assert call("store", "verify").code == 0
    best = filled["best"]["artifact"]
    model = home / "artifacts" / best[:2] / best / "model.onnx"
    model.chmod(0o644)
    model.write_bytes(b"worse")
    code, out, err = call("store", "verify", "--json")
    assert (code, err) == (1, "")
    assert [p["digest"] for p in json.loads(out)["problems"]] == [best]
    assert best in call("store", "verify").out


def test_gc_only_talks_until_told_to(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    code, out, err = call("store", "gc", "--keep-runs", "0", "--max-size", "1k")
    assert (code, err) == (0, "")
    assert out.startswith("would delete 1 runs")
    assert "artifacts that no run needs, but that were used in the last hour" in out
    assert out.endswith("nothing was deleted; use --yes to delete\n")
    assert json.loads(call("runs", "--json").out)
    assert json.loads(call("store", "gc", "--keep-runs", "0", "--yes", "--json").out)["runs"] == [filled["run"]]
    assert json.loads(call("runs", "--json").out) == []


def test_gc_says_why_it_stays_above_the_limit(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    reason = "more than --max-size: these are sources and results of runs, or in use"
    assert reason in call("store", "gc", "--max-size", "0").out
    assert reason not in call("store", "gc", "--max-size", "1G").out


def test_stats_counts(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    found = json.loads(call("store", "stats", "--json").out)
    assert (found["rows"]["trial"], found["pass_runs"]) == (2, {"ok": 2})
    assert "trial" in call("store", "stats").out


def test_a_run_moves_to_another_home(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("store", "export", "--out", "moved.tar").out == "wrote moved.tar\n"
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "other"))
    settings.cache_clear()
    assert json.loads(call("store", "import", "moved.tar", "--json").out) == {"run": filled["run"]}
    document = json.loads(call("best", "--json").out)
    assert document.pop("notes")[0].startswith("imported from moved.tar")
    assert {**document, "notes": []} == RunResult.from_json(filled).to_json()
    assert json.loads(call("lineage", "--json").out)["steps"]


@pytest.mark.parametrize("out", [".", "nowhere/run.tar"])
def test_an_export_needs_a_file_in_a_folder(call: Callable[..., Any], filled: dict[str, Any], out: str) -> None:
    assert call("store", "export", "-o", out) == (2, "", f"{out}: must be a file in a folder that exists\n")


def test_what_is_no_export_is_wrong_input(call: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    (tmp_path / "junk.tar").write_bytes(b"junk")
    for name in ("junk.tar", "absent.tar"):
        code, out, err = call("store", "import", name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert name in err


@pytest.mark.parametrize(
    ("text", "value"), [("500", 500), ("20G", 20 * 10**9), ("1.5 TB", 1500 * 10**9), ("3kB", 3000)]
)
def test_sizes(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize("text", ["", "many", "-1G", "nan", "1e999", "G"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(InputError, match="not a size"):
        parse_size(text)


def test_an_imported_run_is_marked_in_every_view_and_not_resumed(
    call: Callable[..., Any], filled: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    call("store", "export", "--out", "run.tar")
    home.rename(tmp_path / "elsewhere")
    assert call("store", "import", "run.tar").code == 0
    run = filled["run"]
    marks = {
        ("runs",): "finished, imported",
        ("best",): "imported from run.tar: everything here was measured elsewhere, and may have been edited",
        ("lineage",): "imported  run.tar: steps made elsewhere, and perhaps edited",
    }
    for arguments, mark in marks.items():
        assert mark in call(*arguments).out
        assert "run.tar" in call(*arguments, "--json").out
    assert call("report").code == 0
    assert "imported from run.tar" in (tmp_path / "report.html").read_text()
    refused = (
        f"run {run} was imported from run.tar and cannot be continued; start a run of your own with 'autoopt run'\n"
    )
    assert call("resume", run) == (2, "", refused)
    with open_store(None, home) as store:
        own = store.runs.create(RunRecord(id="", name="own", identity="own", model=filled["baseline"]["artifact"])).id
        store.runs.finish(own, "finished", {**filled, "run": own})
    assert f"note: run {run} was imported from run.tar" in call("compare", run, own).out
    assert json.loads(call("compare", run, own, "--json").out)["imported"] == {run: "run.tar"}


def test_a_result_that_cannot_be_read_hides_no_other_run(
    call: Callable[..., Any], filled: dict[str, Any], home: Path
) -> None:
    with closing(sqlite3.connect(home / "autoopt.db")) as connection, connection:
        columns = "identity, model, plan, settings, status, created"
        connection.execute(
            f"INSERT INTO run (id, name, result, {columns}) SELECT 'odd', 'odd', '7', {columns} FROM run"
        )
    code, out, _ = call("runs")
    assert code == 0
    assert {"odd", filled["run"][:12]} <= set(out.split())
    code, out, err = call("best", "odd")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "the result of run odd cannot be read" in err


def test_a_lost_store_comes_back_from_its_backup(
    call: Callable[..., Any], filled: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    assert call("store", "backup", "backup").out == "backed up 1 runs, 3 artifacts\n"
    (home / "autoopt.db").unlink()
    code, out, err = call("runs")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "holds 3 artifacts: a database was lost; bring back a backup with 'autoopt store restore FOLDER'" in err
    assert call("store", "restore", "backup") == (0, "restored 1 runs, 3 artifacts\n", "")
    assert json.loads(call("best", "--json").out) == RunResult.from_json(filled).to_json()


def test_repair_saves_the_artifacts(call: Callable[..., Any], filled: dict[str, Any], home: Path) -> None:
    (home / "autoopt.db").write_bytes(b"damaged" * 1000)
    assert call("runs").err.endswith("check AUTOOPT_DB_URL if it is another file\n")
    code, out, err = call("store", "repair")
    assert (code, err) == (0, "")
    assert out.endswith("autoopt.db.damaged-1; 0 rows could be read\nartifacts without a row: 3 added, 0 damaged\n")
    assert call("store", "verify").code == 0
    artifacts = sorted((home / "artifacts").rglob("model.onnx"))
    for path in [*artifacts, *(path.parent for path in artifacts)]:
        os.utime(path, (1, 1))
    out = call("store", "gc", "--yes").out
    assert "kept 3 artifacts that a lost database may have named; --lost deletes them" in out
    assert sorted((home / "artifacts").rglob("model.onnx")) == artifacts


def test_a_missing_table_is_noticed_and_repaired(call: Callable[..., Any], filled: dict[str, Any], home: Path) -> None:
    with closing(sqlite3.connect(home / "autoopt.db")) as connection:
        connection.execute("DROP TABLE trial")
    code, out, err = call("store", "verify")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "the table 'trial' is missing; bring back a backup" in err
    code, out, err = call("store", "repair")
    assert (code, err) == (0, "")
    assert "the damaged database is now" in out
    assert call("store", "verify").code == 0
    assert json.loads(call("best", "--json").out) == RunResult.from_json(filled).to_json()


@pytest.mark.parametrize("arguments", [("runs",), ("store", "repair"), ("store", "verify"), ("store", "restore", ".")])
def test_a_folder_in_the_place_of_the_database_is_refused(
    call: Callable[..., Any], home: Path, arguments: tuple[str, ...]
) -> None:
    (home / "autoopt.db").mkdir(parents=True)
    code, out, err = call(*arguments)
    assert (code, out, err) == (
        2,
        "",
        f"{home / 'autoopt.db'}: is not a file; the database cannot be there; move it away\n",
    )


@pytest.mark.parametrize("arguments", [("backup",), ("export", "--out")])
def test_a_url_is_no_place_for_a_backup_or_an_export(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    code, out, err = call("store", *arguments, "s3://key:canary@bucket/x")
    assert (code, out) == (2, "")
    assert err == "s3://***: is a URL, not a file or folder; name a file or folder of this machine\n"
    assert not Path("s3:").exists()
