"""A store and an export that schema 0002 left after real runs, under today's code.

`kept_search` holds what `autoopt run dag.yaml` wrote: its inputs, the database as SQL, and the finished run exported
with its artifacts. A second run was killed between two trials. SQL and recipe call the folder `/kept/search`.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autoopt.cli.app import main
from autoopt.engine.inputs import resolve
from autoopt.settings import settings
from autoopt.store import Store, open_store
from autoopt.store.files.artifacts import ArtifactLost
from autoopt.store.maintenance.transfer import import_run
from autoopt.store.maintenance.verify import verify

KEPT = Path(__file__).parent / "kept_search"
FINISHED, STOPPED = "55a6f96510e1", "3730c1f9e7b9"
Call = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the inputs of the runs and the store in `.autoopt`, as the user would find it."""
    for name in ("dag.yaml", "model.onnx", "evaluation.npz"):
        shutil.copy(KEPT / name, tmp_path / name)
    (tmp_path / "recipe.json").write_text((KEPT / "recipe.json").read_text().replace("/kept/search", str(tmp_path)))
    home = tmp_path / ".autoopt"
    with tarfile.open(KEPT / "run.tar") as archive:
        for member in archive.getmembers()[1:]:
            digest, name = Path(member.name).parts[1:]
            member.name = f"artifacts/{digest[:2]}/{digest}/{name}"
            archive.extract(member, home, filter="data")
    with sqlite3.connect(home / "autoopt.db") as connection:
        connection.executescript((KEPT / "store.sql").read_text().replace("/kept/search", str(tmp_path)))
    connection.close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOOPT_HOME", raising=False)
    settings.cache_clear()
    yield tmp_path
    settings.cache_clear()


@pytest.fixture
def call(folder: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    """Run a command of autoopt that ends with `code`; returns its standard output."""

    def run(*arguments: str, code: int = 0) -> str:
        capfd.readouterr()
        assert main(arguments) == code
        return capfd.readouterr().out

    return run


def settings_of(store: Store, run: str) -> Any:
    return store.runs.get(run).settings


def test_the_settings_of_runs_have_a_replay_environment(folder: Path) -> None:
    before = (KEPT / "store.sql").read_text()
    assert '"kitchen":' in before
    assert "replay_environment" not in before
    with open_store() as store:
        for run in (FINISHED, STOPPED):
            assert "kitchen" not in settings_of(store, run)
            assert settings_of(store, run)["replay_environment"]["data_root"] == str(folder)
        assert verify(store).ok


def test_an_export_of_that_schema_has_a_replay_environment(tmp_path: Path) -> None:
    with open_store(None, tmp_path / "home") as store:
        run = import_run(store, KEPT / "run.tar")
        assert run == FINISHED
        assert "kitchen" not in settings_of(store, run)
        assert "accelerator" in settings_of(store, run)["replay_environment"]
        assert len(store.trials.all(run)) == 3
        assert verify(store).ok


def test_runs_best_and_lineage_show_what_was_found(call: Call) -> None:
    newest, oldest = json.loads(call("runs", "--json"))
    assert (newest["run"], newest["status"]) == (STOPPED, "running")
    assert (oldest["run"], oldest["status"]) == (FINISHED, "finished")
    assert "simplify -> static" in call("best", FINISHED)
    best = json.loads(call("best", FINISHED, "--json"))["best"]
    lineage = json.loads(call("lineage", FINISHED, "--json"))
    assert lineage["artifact"] == best["artifact"]
    assert [step["pass"] for step in lineage["steps"]] == ["quant_pre_process", "static_quantization"]


def test_the_report_of_a_run_can_be_written(call: Call, folder: Path) -> None:
    call("report", FINISHED, "--out", "report.html")
    assert "static_quantization" in (folder / "report.html").read_text()


def test_a_recipe_of_passes_that_have_changed_makes_another_model_and_says_so(call: Call, folder: Path) -> None:
    document = json.loads(call("replay", "recipe.json", "--model", "model.onnx", "--json", code=1))
    recipe = json.loads((KEPT / "recipe.json").read_text())
    assert (folder / document["path"]).is_file()
    assert document["same"] is False
    assert document["digest"] != recipe["result"]


def test_a_lost_model_is_not_replaced_by_what_a_changed_pass_makes(call: Call) -> None:
    with open_store() as store:
        best = store.runs.get(FINISHED).result
        assert best is not None
        lost = store.lineage.trace(best["best"]["artifact"]).steps[0].output.artifact
        store.artifacts.path(lost).unlink()
    assert f"damaged: {lost}" in call("store", "verify", "--repair", code=1)
    with open_store() as store, pytest.raises(ArtifactLost):
        store.artifacts.path(lost)


def test_an_identical_run_is_answered_from_the_store(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store() as store:
        identity = store.runs.get(FINISHED).identity
    # The identity covers the versions of libraries and the CPU, which are others on another machine.
    monkeypatch.setattr(resolve, "run_identity", lambda _: identity)
    document = json.loads(call("run", "dag.yaml", "--engine", "inline", "--json", "--quiet"))
    assert document["run"] == FINISHED
    assert document["pass_runs"]["executed"] == document["evaluations"]["executed"] == 0


def test_a_killed_run_is_resumed(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store() as store:
        identity = store.runs.get(STOPPED).identity
    monkeypatch.setattr(resolve, "run_identity", lambda _: identity)
    (document,) = json.loads(call("resume", STOPPED, "--engine", "inline", "--json", "--quiet"))
    assert document["run"] == STOPPED
    with open_store() as store:
        assert [trial.status for trial in store.trials.all(STOPPED)] == ["done"] * 3
