"""`autoopt store`, the quarantine, and the store for commands that only read it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autoopt.cli.app import main
from autoopt.cli.store_access import existing_store, require_store
from autoopt.engine.tools.stored_models import lineage_document, target_of
from autoopt.errors import InputError
from autoopt.outcome import Outcome
from autoopt.problem.quarantine import Quarantine, Subject
from autoopt.results import PartResult, RunResult
from autoopt.settings import settings
from autoopt.store import RunRecord, open_store
from autoopt.store.finished import result_of
from autoopt.workers import CallResult


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
    code, out, err = call("store", "gc", "--keep-runs", "0")
    assert (code, err) == (0, "")
    assert out.startswith("would delete 1 runs")
    assert "artifacts that no run needs, but that were used in the last hour" in out
    assert out.endswith("nothing was deleted; use --yes to delete\n")
    assert json.loads(call("runs", "--json").out)
    assert json.loads(call("store", "gc", "--keep-runs", "0", "--yes", "--json").out)["runs"] == [filled["run"]]
    assert json.loads(call("runs", "--json").out) == []


def test_stats_counts(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    found = json.loads(call("store", "stats", "--json").out)
    assert (found["rows"]["trial"], found["pass_runs"]) == (2, {"ok": 2})
    assert "trial" in call("store", "stats").out


def test_a_result_that_cannot_be_read_hides_no_other_run(
    call: Callable[..., Any], filled: dict[str, Any], home: Path
) -> None:
    with closing(sqlite3.connect(home / "autoopt.db")) as connection, connection:
        columns = "identity, model, plan, settings, status, seconds, created, is_check"
        connection.execute(
            f"INSERT INTO run (id, name, result, {columns}) SELECT 'odd', 'odd', '7', {columns} FROM run"
        )
    code, out, _ = call("runs")
    assert code == 0
    assert {"odd", filled["run"][:12]} <= set(out.split())
    code, out, err = call("runs", "odd")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "the result of run odd cannot be read" in err


def test_a_lost_store_comes_back_from_its_backup(
    call: Callable[..., Any], filled: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    assert call("store", "backup", "backup").out == "backed up 1 runs, 3 artifacts\n"
    (home / "autoopt.db").unlink()
    code, out, err = call("runs")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "holds 3 artifacts of another one; bring back a backup with 'autoopt store restore FOLDER'" in err
    assert call("store", "restore", "backup") == (0, "restored 1 runs, 3 artifacts\n", "")
    assert json.loads(call("runs", "latest", "--json").out) == RunResult.from_json(filled).to_json()


def drop_table(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DROP TABLE trial")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (drop_table, "the table 'trial' is missing"),
        (lambda database: database.write_bytes(b"damaged" * 1000), "file is not a database"),
    ],
)
def test_a_damaged_database_is_noticed_and_comes_back_from_its_backup(
    call: Callable[..., Any], filled: dict[str, Any], home: Path, damage: Callable[[Path], None], said: str
) -> None:
    assert call("store", "backup", "backup").code == 0
    damage(home / "autoopt.db")
    content = (home / "autoopt.db").read_bytes()
    code, out, err = call("store", "verify")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{said}; bring back a backup with 'autoopt store restore FOLDER'" in err
    assert call("store", "restore", "backup") == (0, "restored 1 runs, 3 artifacts\n", "")
    assert (home / "autoopt.db.damaged-1").read_bytes() == content
    assert call("store", "verify").code == 0
    assert json.loads(call("runs", "latest", "--json").out) == RunResult.from_json(filled).to_json()


@pytest.mark.parametrize("arguments", [("runs",), ("store", "verify"), ("store", "restore", ".")])
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


def test_a_url_is_no_place_for_a_backup(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    code, out, err = call("store", "backup", "s3://key:canary@bucket/x")
    assert (code, out) == (2, "")
    assert err == "s3://***: is a URL, not a file or folder; name a file or folder of this machine\n"
    assert not Path("s3:").exists()


DIED = CallResult(Outcome.CRASHED, message="the worker died: SIGSEGV", died=True)


@pytest.fixture
def quarantined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store in which a pass has killed two workers."""
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path))
    monkeypatch.delenv("AUTOOPT_DB_URL", raising=False)
    settings.cache_clear()
    with open_store(None, tmp_path) as store:
        for _ in range(2):
            Quarantine(store).note(Subject("a" * 64, "simplify on model 1f2e3d"), DIED)
    yield tmp_path
    settings.cache_clear()


def test_the_quarantine_is_listed_and_lifted(quarantined: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "verify"]) == 0
    listed = capsys.readouterr().out
    assert all(text in listed for text in ("--lift aaaaaaaaaaaa", "simplify on model 1f2e3d", "SIGSEGV"))
    assert main(["store", "verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["quarantine"][0]["deaths"] == 2
    assert main(["store", "verify", "--lift", "aaaa"]) == 0
    assert capsys.readouterr().out == "lifted: simplify on model 1f2e3d\n"
    assert main(["store", "verify"]) == 0
    assert "quarantine" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["bbbb", ""])
def test_lifting_needs_an_id_that_is_in_quarantine_or_all(
    name: str, quarantined: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "verify", "--lift", name]) == 2
    assert "'autoopt store verify' shows" in capsys.readouterr().err
    assert main(["store", "verify", "--lift", "all"]) == 0


def test_reading_creates_no_store(home: Path) -> None:
    with pytest.raises(InputError, match="no store here; 'autoopt run' creates one"), existing_store():
        raise AssertionError("opened")
    assert not home.exists()


def test_a_database_elsewhere_needs_no_file_here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_DB_URL", "postgresql://host/db")
    settings.cache_clear()
    require_store()


def record(status: str, result: dict[str, Any] | None = None) -> RunRecord:
    return RunRecord(id="1f2e", name="r", identity="i", model="m", status=status, result=result or {})


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (record("running"), "run 1f2e is running; no trial has finished yet"),
        (record("cancelled"), "run 1f2e is cancelled; continue with: autoopt resume 1f2e"),
        (
            record("failed", {"error": "disk full"}),
            "run 1f2e failed: disk full; name a run that has a result, as 'autoopt runs' lists them",
        ),
    ],
)
def test_a_run_without_a_result_says_how_to_continue(run: RunRecord, message: str) -> None:
    with pytest.raises(InputError) as caught:
        result_of(run)
    assert str(caught.value) == message


def test_a_run_without_targets_has_none_to_name(filled: dict[str, Any]) -> None:
    with existing_store() as store, pytest.raises(InputError, match=r"has no target 'gpu'; it has a single target"):
        lineage_document(store, filled["run"], "gpu")


def test_a_target_is_found_by_name_and_the_others_are_listed() -> None:
    parts = tuple(PartResult(name, RunResult(name, "finished"), {}) for name in ("one", "two"))
    result = RunResult("1f2e", "finished", targets=parts)
    assert target_of(result, "two") is parts[1]
    with pytest.raises(InputError, match=r"run 1f2e has no target 'three'; it has: one, two"):
        target_of(result, "three")
