"""`autoopt export`."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import optuna
import pytest

from autoopt.store import open_store
from autoopt.store.leases import end_run

Call = Any


def test_a_run_becomes_a_study_that_optuna_reads(call: Call, filled: dict[str, Any], tmp_path: Path) -> None:
    said = call("export", "latest", "--to", "optuna:study.db")
    name = f"cnn · quick-{filled['run']}"
    assert (said.code, said.err) == (0, "")
    assert said.out == f"wrote {name} to study.db; show it: optuna-dashboard sqlite:///study.db\n"
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert (study.best_value, study.metric_names) == (0.3, ["latency_p50_ratio"])
    assert study.best_params == {"chain": "fold -> static", "static.per_channel": True}
    good, bad = study.trials
    assert good.user_attrs["latency_p50_ratio_high"] == 0.31
    assert (bad.state.name, bad.user_attrs["message"]) == ("FAIL", "odd")


def test_exporting_again_replaces_the_study_and_keeps_the_others(call: Call, filled: dict[str, Any]) -> None:
    storage = optuna.storages.RDBStorage("sqlite:///study.db")
    optuna.create_study(study_name="mine", storage=storage)
    for _ in range(2):
        assert json.loads(call("export", "--to", "optuna", "--json").out)["studies"] == [f"cnn · quick-{filled['run']}"]
    assert sorted(optuna.get_all_study_names(storage)) == [f"cnn · quick-{filled['run']}", "mine"]


def test_a_file_that_is_no_database_is_one_line(call: Call, filled: dict[str, Any]) -> None:
    Path("notes.txt").write_text("mine")
    said = call("export", "--to", "optuna:notes.txt")
    assert (said.code, said.err) == (2, "notes.txt: is not an SQLite file; name another file\n")
    assert call("export", "--to", "optuna:none/study.db").code == 2


@pytest.mark.skipif(find_spec("mlflow") is not None, reason="MLflow is installed")
def test_a_library_that_is_not_installed_is_one_line(call: Call, filled: dict[str, Any]) -> None:
    said = call("export", "--to", "mlflow")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.endswith("not installed; pip install 'autoopt[mlflow]'\n")


def test_a_run_is_logged_to_mlflow_and_replaced_by_the_next_export(
    call: Call, filled: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = "sqlite:///ml.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    for _ in range(2):
        said = call("export", "--to", "mlflow", "--json")
        assert said.code == 0, said.err
    document = json.loads(said.out)
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name(document["experiment"])
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 3, "the run and its two trials"
    whole = client.get_run(document["mlflow_runs"][filled["run"]])
    assert whole.data.metrics["latency_p50_ratio"] == 0.3
    assert whole.data.params == {"chain": "fold -> static", "static.per_channel": "True"}
    files = [item.path for item in client.list_artifacts(whole.info.run_id)]
    assert files == ["package", "report.html", "result.json"]
    trials = {run.info.run_name: run for run in runs if "mlflow.parentRunId" in run.data.tags}
    assert trials["trial 0"].data.tags["mlflow.parentRunId"] == whole.info.run_id
    assert (trials["trial 1"].info.status, trials["trial 1"].data.tags["message"]) == ("FAILED", "odd")


def test_the_best_model_of_the_latest_run_is_the_default(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path
) -> None:
    code, out, err = call("export", "-o", "made")
    assert (code, err) == (0, "")
    assert out == "wrote made/: fold -> static: 3.3x faster (3.2 to 3.4)\n"
    assert (tmp_path / "made" / "model.onnx").read_bytes() == b"best"
    recipe = json.loads((tmp_path / "made" / "recipe.json").read_text())
    assert [step["pass"] for step in recipe["steps"]] == ["batchnorm_folding", "static_quantization"]


def test_files_of_an_earlier_model_go_and_other_files_stay(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    for name in ("model.onnx.data", "model.ort", "notes.txt"):
        (tmp_path / "out" / name).write_text("old")
    (tmp_path / "out" / "recipe.json").write_text('{"run": "1f2e3d4c5b6a"}')
    assert call("export").code == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"model.onnx", "notes.txt"} <= names
    assert not names & {"model.onnx.data", "model.ort"}


def test_a_trial_is_named_by_its_number(call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path) -> None:
    code, out, _ = call("export", filled["run"][:6], "0", "-o", "small.zip", "--json")
    assert code == 0
    assert json.loads(out) == {
        "run": filled["run"],
        "trial": 0,
        "path": str(tmp_path / "small.zip"),
        "artifact": filled["best"]["artifact"],
    }
    with zipfile.ZipFile(tmp_path / "small.zip") as archive:
        assert archive.read("small/model.onnx") == b"best"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("latest", "1"), "has no model (odd); 'autoopt report' lists the trials"),
        (("latest", "7"), "has no trial 7; 'autoopt report' lists its trials"),
        (("latest", 30 * "9"), "has no trial 999"),
        (("latest", "--target", "gpu"), "has no target 'gpu'; it has a single target"),
    ],
)
def test_what_is_not_there_is_one_line(
    call: Callable[..., Any], filled: dict[str, Any], arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = call("export", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_cancelled_run_has_its_best_so_far(call: Callable[..., Any], filled: dict[str, Any], home: Path) -> None:
    with open_store(None, home) as store:
        assert store.claims.acquire("run", filled["run"], redo=True)
        store.runs.update(filled["run"], {**filled, "status": "running"})
    assert "So far: 3.3x faster (3.2 to 3.4). Get it: autoopt export" in call("runs", "latest").out
    with open_store(None, home) as store:
        store.runs.finish(filled["run"], "cancelled", filled)
    assert f"Go on: autoopt resume {filled['run']}" in call("runs", "latest").out
    assert json.loads(call("runs", "latest", "--json").out)["status"] == "cancelled"
    assert "cancelled" in call("runs").out
    assert call("export", "-o", "made").code == 0
    assert call("report").code == 0


def test_a_failed_run_is_not_to_be_resumed(call: Callable[..., Any], filled: dict[str, Any], home: Path) -> None:
    with open_store(None, home) as store:
        assert store.claims.acquire("run", filled["run"], redo=True)
        store.runs.update(filled["run"], {**filled, "status": "running"})
        end_run(store, filled["run"], "failed", "post_process: ValueError")
    said = call("runs", "latest").out
    assert "resume" not in said
    assert "run the same command again" in said
