"""`autoopt export`, `export-optuna`, `export-mlflow` and `export-openlineage`."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import optuna
import pytest

from autoopt.store import open_store
from autoopt.store.leases import end_run

Call = Any


def test_a_run_becomes_a_study_that_optuna_reads(call: Call, filled: dict[str, Any], tmp_path: Path) -> None:
    said = call("export-optuna", "latest", "-o", "study.db")
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
        assert json.loads(call("export-optuna", "--json").out)["studies"] == [f"cnn · quick-{filled['run']}"]
    assert sorted(optuna.get_all_study_names(storage)) == [f"cnn · quick-{filled['run']}", "mine"]


def test_a_file_that_is_no_database_is_one_line(call: Call, filled: dict[str, Any]) -> None:
    Path("notes.txt").write_text("mine")
    said = call("export-optuna", "-o", "notes.txt")
    assert (said.code, said.err) == (2, "notes.txt: is not an SQLite file; name another file with -o\n")
    assert call("export-optuna", "-o", "none/study.db").code == 2


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [("mlflow", "export-mlflow", "mlflow"), ("openlineage", "export-openlineage", "openlineage")],
)
def test_a_library_that_is_not_installed_is_one_line(
    call: Call, filled: dict[str, Any], module: str, command: str, extra: str
) -> None:
    if find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    said = call(command)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.endswith(f"not installed; pip install 'autoopt[{extra}]'\n")


def check_events(events: list[Any], result: dict[str, Any]) -> None:
    """The events of the run itself and of its one pass run that a trial used."""
    whole = [event for event in events if event["job"]["name"] == "cnn · quick"]
    steps = [event for event in events if event["job"]["name"] == "cnn · quick.static_quantization"]
    assert [event["eventType"] for event in whole] == [event["eventType"] for event in steps] == ["START", "COMPLETE"]
    assert [item["name"] for item in whole[-1]["inputs"]] == [result["baseline"]["artifact"]]
    assert [item["name"] for item in steps[-1]["outputs"]] == [result["best"]["artifact"]]
    assert steps[0]["run"]["facets"]["parent"]["run"]["runId"] == whole[0]["run"]["runId"]
    for event in events:
        assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
        assert event["producer"] == event["run"]["facets"]["processing_engine"]["_producer"] == "urn:autoopt"


def test_a_run_becomes_openlineage_events(call: Call, filled: dict[str, Any]) -> None:
    pytest.importorskip("openlineage.client")
    said = call("export-openlineage", "-o", "events.jsonl")
    assert (said.code, said.out) == (0, f"4 events of run {filled['run']}: events.jsonl\n")
    text = Path("events.jsonl").read_text()
    check_events([json.loads(line) for line in text.splitlines()], filled)
    assert call("export-openlineage", "-o", "events.jsonl").code == 0
    assert Path("events.jsonl").read_text() == text, "the same run has the same ids"


def test_events_are_sent_to_a_server(call: Call, filled: dict[str, Any]) -> None:
    pytest.importorskip("openlineage.client")
    events = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://me:canary@127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            said = call("export-openlineage", "--url", url)
        finally:
            server.shutdown()
            thread.join()
    assert said.code == 0, said.err
    assert "canary" not in said.out
    check_events(events, filled)


def test_a_run_is_logged_to_mlflow_and_replaced_by_the_next_export(call: Call, filled: dict[str, Any]) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    uri = "sqlite:///ml.db"
    for _ in range(2):
        said = call("export-mlflow", "--tracking-uri", uri, "--json")
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
    assert "So far: 3.3x faster (3.2 to 3.4). Get it: autoopt export" in call("best").out
    with open_store(None, home) as store:
        store.runs.finish(filled["run"], "cancelled", filled)
    assert f"Go on: autoopt resume {filled['run']}" in call("best").out
    assert json.loads(call("best", "--json").out)["status"] == "cancelled"
    assert "cancelled" in call("runs").out
    assert call("export", "-o", "made").code == 0
    assert call("report").code == 0


def test_a_failed_run_is_not_to_be_resumed(call: Callable[..., Any], filled: dict[str, Any], home: Path) -> None:
    with open_store(None, home) as store:
        assert store.claims.acquire("run", filled["run"], redo=True)
        store.runs.update(filled["run"], {**filled, "status": "running"})
        end_run(store, filled["run"], "failed", "post_process: ValueError")
    said = call("best").out
    assert "resume" not in said
    assert "run the same command again" in said
