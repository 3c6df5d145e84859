"""Sweeps over models made here: what is done, what is not done again, what is told apart."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from builders import cnn, mlp, write

from autoopt.cli.app import main
from autoopt.engine.work.context import Attempt
from autoopt.errors import EXIT_INTERRUPTED, ConfigError, InputError
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import fetch
from autoopt.observer import CallbackObserver
from autoopt.results import SweepResult
from autoopt.settings import settings
from autoopt.spec.zoo import load_zoo
from autoopt.store import SweepRecord, open_store
from autoopt.store.verify import stats
from autoopt.zoo.releases import Promotion, promote
from autoopt.zoo.sweep import run_sweep
from autoopt.zoo.sweep_comparison import differences
from autoopt.zoo.sweep_request import SweepRequest
from autoopt.zoo.zoo_models import items

DAG = """\
name: small
passes:
  tidy: {pass: simplify}
  fold: {pass: batchnorm_folding}
chains: [[tidy, fold]]
constraints: []
measurement: {seconds: 0.05, replicas: 1, target_width: 1.0, rounds: 0}
"""
ZOO = """\
name: nightly
dag: dag.yaml
models:
  - {path: more.zip, tags: [cnn]}
  - {path: bad.onnx, tags: [odd]}
  - {path: mlp, tags: [dense]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(mlp(), tmp_path / "mlp")
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.write(write(cnn(), tmp_path / "made"), "deep/net.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"nonsense")
    (tmp_path / "dag.yaml").write_text(DAG)
    (tmp_path / "zoo.yaml").write_text(ZOO)
    return tmp_path


def by_size(folder: Path) -> Path:
    """The zoo with a goal that takes no time to measure."""
    (folder / "dag.yaml").write_text(DAG + "objectives: [{metric: size}]\n")
    return folder


def sweep(folder: Path, **options: Any) -> dict[str, Any]:
    return run_sweep(SweepRequest(zoo=folder / "zoo.yaml", home=folder / "home", **options)).to_json()


def models(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in document["models"]}


def evaluation_count(folder: Path) -> int:
    with open_store(None, folder / "home") as store:
        return stats(store).rows["evaluation"]


def test_a_sweep_its_repetition_a_night_and_a_regression(folder: Path) -> None:
    first = sweep(folder, out=folder / "out")
    found = models(first)
    assert [(n, e["status"]) for n, e in found.items()] == [("more", "ok"), ("bad", "refused"), ("mlp", "ok")]
    assert "not an ONNX model" in found["bad"]["reason"]
    assert {e["compared"]["verdict"] for e in found.values()} == {"new"}
    assert not SweepResult.from_json(first).failed
    assert (folder / "out" / "more" / "model.onnx").read_bytes() == Path(found["more"]["best"]["path"]).read_bytes()
    assert json.loads((folder / "out" / "sweep.json").read_text()) == first
    page = (folder / "out" / "sweep.html").read_text()
    assert "not an ONNX model" in page
    assert f'href="reports/{found["mlp"]["run"]}.html"' in page
    assert "<title>" in (folder / "out" / "reports" / f"{found['mlp']['run']}.html").read_text()

    again = models(sweep(folder))
    for name in ("more", "mlp"):
        assert again[name]["reused"]
        assert again[name]["pass_runs"]["executed"] == again[name]["evaluations"]["executed"] == 0
    assert {e["compared"]["verdict"] for e in again.values()} == {"same"}
    assert again["more"]["inputs"] == found["more"]["inputs"]
    assert again["more"]["inputs"]["model"] != again["mlp"]["inputs"]["model"]

    before = evaluation_count(folder)
    night = models(sweep(folder, only="cnn", nightly=True))
    assert list(night) == ["more"]
    assert night["more"]["reused"]
    assert evaluation_count(folder) > before, "measured anew"

    (folder / "mlp" / "model.onnx").write_bytes(b"broken in the meantime")
    broken = sweep(folder, only="dense")
    assert broken["regressions"] == ["mlp"]
    assert models(broken)["mlp"]["compared"]["verdict"] == "fails"
    assert SweepResult.from_json(broken).failed
    assert sweep(folder, only="dense")["regressions"] == ["mlp"]  # still compared with the last good one
    write(mlp(), folder / "mlp")
    assert models(sweep(folder, only="dense"))["mlp"]["compared"]["verdict"] == "same"


def test_without_a_dag_one_is_proposed_for_each_model(folder: Path) -> None:
    lines = [line for line in ZOO.splitlines() if not line.startswith("dag:") and "bad" not in line]
    (folder / "zoo.yaml").write_text("\n".join([*lines, "objectives: [size]"]))
    found = models(sweep(folder, search={"trials": 1}))
    assert [(name, entry["status"]) for name, entry in found.items()] == [("more", "ok"), ("mlp", "ok")]
    again = models(sweep(folder, search={"trials": 1}))
    assert [entry["reused"] for entry in again.values()] == [True, True]


TERMINATE = """\
import os
import signal
from pathlib import Path

from autoopt import register

PID = Path(__file__).with_name("pid")


@register("terminate")
def terminate(model, number: int = 0):
    \"\"\"Ends the process of the sweep in the first trial with number 1.\"\"\"
    if number == 1 and PID.exists():
        pid = int(PID.read_text())
        PID.unlink()
        os.kill(pid, signal.SIGTERM)
        os.read(os.pipe()[0], 1)  # until the signal takes effect: nobody writes into the pipe
    return model
"""


def test_sigterm_ends_a_sweep_with_its_results_and_it_goes_on_with_the_same_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AUTOOPT_HOME", str(folder / "home"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    settings.cache_clear()
    (folder / "ends.py").write_text(TERMINATE)
    (folder / "pid").write_text(str(os.getpid()))
    (folder / "ends.yaml").write_text(
        "name: ends\nuser_script: ends.py\n"
        "passes: {ends: {pass: terminate, params: {number: {search: [0, 1]}}}}\nchains: [[ends]]\n"
        "objectives: [{metric: size}]\nconstraints: []\n"
    )
    by_size(folder)
    (folder / "zoo.yaml").write_text("name: z\ndag: dag.yaml\nmodels: [more.zip, {path: mlp, dag: ends.yaml}]\n")
    assert main(["sweep", "zoo.yaml", "--quiet"]) == EXIT_INTERRUPTED
    assert (folder / "out" / "more" / "model.onnx").exists()
    with open_store(None, folder / "home") as store:
        assert store.sweeps.get("latest").status == "cancelled"
        [run] = store.runs.all(status="cancelled")
    capsys.readouterr()
    assert main(["resume"]) == 0
    assert capsys.readouterr().out == "no run was interrupted or cancelled\n"
    assert main(["sweep", "zoo.yaml", "--resume", "--quiet"]) == 0
    document = json.loads((folder / "out" / "sweep.json").read_text())
    assert document["not_run"] == []
    assert models(document)["mlp"]["run"] == run.id


def test_a_night_measures_again_though_the_search_has_used_up_its_minutes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds_left(attempt: Attempt, limit: float) -> float:
        """Those of a call, as if the minutes were long over."""
        return limit if math.isinf(attempt.deadline) else 0.5

    def use_up(event: str, **_: Any) -> None:
        if event == "trial_ends":
            monkeypatch.setattr(Attempt, "call_seconds", seconds_left)

    dag = folder / "dag.yaml"
    dag.write_text(re.sub("measurement: .*", "measurement: {seconds: 1.0, target_width: 0.0001}", dag.read_text()))
    observer = CallbackObserver(use_up)
    night = models(sweep(folder, only="dense", nightly=True, observer=observer, search={"minutes": 60.0}))["mlp"]
    with open_store(None, folder / "home") as store:
        run = store.runs.get(night["run"]).result or {}
    # Not the medians alone: both are nanoseconds, and may be equal by chance.
    assert night["baseline"]["intervals"]["latency_p50"] != run["baseline"]["intervals"]["latency_p50"]


def test_a_sweep_of_some_models_leaves_what_the_last_sweep_said_of_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = models(sweep(by_size(folder), out=folder / "out"))
    monkeypatch.setattr("autoopt.zoo.sweep_entry.environment", lambda: {"libraries": {"onnxruntime": "new"}})
    sweep(folder, out=folder / "out", only="cnn")
    pages = {page.stem for page in (folder / "out" / "reports").iterdir()}
    assert pages == {entry["run"] for entry in before.values()} - {""}
    changes = sweep(folder, only=None)["environment_changes"]
    assert any(change.endswith("-> new") for change in changes)


def test_the_last_best_is_measured_beside_tonights(folder: Path) -> None:
    first = models(sweep(folder, only="cnn"))["more"]
    with open_store(None, folder / "home") as store:
        record = store.sweeps.get("latest")
        other = Candidate(first["baseline"]["artifact"], {"intra_op_num_threads": 1})
        best = {**first["best"], "artifact": other.artifact, "session_options": dict(other.session_options)}
        ratio = {"latency_p50": {"value": 1e-30, "low": 0.9e-30, "high": 1.1e-30}}
        entry = {**first, "best": {**best, "ratios": ratio, "chain": "tidy"}}
        store.sweeps.finish(record.id, "finished", {**(record.result or {}), "models": [entry]})
    document = sweep(folder, only="cnn", nightly=True)
    night = models(document)["more"]
    assert night["last_best"]["session_options"] == {"intra_op_num_threads": 1}
    assert night["last_best"]["ratios"]["latency_p50"]["value"] > 0.1
    assert {(c["what"], c["verdict"]) for c in night["compared"]["changes"] if c["metric"] == "latency_p50"} >= {
        ("best model", "worse"),
        ("last best model", "worse"),
    }
    assert document["regressions"] == ["more"]


def test_another_source_is_compared_by_the_models_beside_each_other(folder: Path) -> None:
    (folder / "dag.yaml").write_text(
        "name: small\npasses: [name_fix]\nchains: [[name_fix]]\nobjectives: [{metric: size}]\nconstraints: []\n"
        "measurement: {seconds: 0.05, replicas: 1, target_width: 1.0, rounds: 0}\n"
    )

    def verdict(width: int) -> tuple[str, int]:
        write(mlp(width=width), folder / "mlp")
        compared = models(sweep(folder, only="dense"))["mlp"]["compared"]
        return compared["verdict"], compared["release"]

    assert verdict(32) == ("new", 0)
    assert verdict(16) == ("better", 0)
    with open_store(None, folder / "home") as store:
        promote(store, Promotion("mlp"))
    assert verdict(64) == ("worse", 1)
    refusal = pytest.raises(InputError, match=r"mlp is 'worse' in the newest sweep .* so it is not released")
    with open_store(None, folder / "home") as store, refusal:
        promote(store, Promotion("nightly/mlp"))


def test_another_runtime_on_a_host_is_measured_again(folder: Path) -> None:
    python = folder / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    site = next((folder / "env").glob("lib/python*/site-packages"))
    have = Path(onnxruntime.__file__).parent
    (site / "onnxruntime").mkdir()
    for path in (*have.iterdir(), *have.parent.glob("numpy*")):
        if path.name == "__pycache__":  # of another __init__.py
            continue
        below = site / "onnxruntime" if path.parent == have else site
        (below / path.name).symlink_to(path)
    start = site / "onnxruntime" / "__init__.py"
    (folder / "dag.yaml").write_text(DAG + f"target: {{host: {{type: isolated_ort, python: {python}}}}}\n")
    text = start.read_text()

    def other_version(version: str) -> dict[str, Any]:
        start.unlink(missing_ok=True)
        start.write_text(f'{text}\n__version__ = "{version}"\n')
        # A cached bytecode file of the same second and size would hide the change.
        shutil.rmtree(start.parent / "__pycache__", ignore_errors=True)
        return models(sweep(folder, only="dense"))["mlp"]

    first, again = other_version("9.8.7"), other_version("9.8.7")
    assert (first["reused"], again["reused"]) == (False, True)
    later = other_version("9.8.8")
    assert not later["reused"]
    assert later["evaluations"]["executed"]
    changes = differences(first["environment"], later["environment"])
    assert [change.partition("onnxruntime ")[2] for change in changes] == ["9.8.7 -> 9.8.8"]


def test_an_interrupted_sweep_goes_on(folder: Path) -> None:
    class Stop(BaseException):
        pass

    by_size(folder)

    def stop_at_second(event: str, **values: Any) -> None:
        if event == "phase" and values["name"] == "model bad":
            raise Stop

    def resume_meanwhile(event: str, **values: Any) -> None:
        if event == "phase" and values["name"] == "model more":
            with pytest.raises(InputError, match=r"sweep \w+ of nightly is running .*; wait until it has ended"):
                sweep(folder, resume=True)
        stop_at_second(event, **values)

    with pytest.raises(Stop):
        sweep(folder, nightly=True, observer=CallbackObserver(resume_meanwhile))
    with pytest.raises(InputError, match=r"--only: .* was started without it"):
        sweep(folder, resume=True, only="dense")
    heard: list[str] = []
    document = sweep(
        folder,
        resume=True,
        observer=CallbackObserver(lambda event, **v: heard.append(v["name"]) if event == "phase" else None),
    )
    assert [name for name in heard if name.startswith("model ")] == ["model bad", "model mlp"]
    assert list(models(document)) == ["more", "bad", "mlp"]
    assert document["nightly"]  # as it was begun
    with open_store(None, folder / "home") as store:
        assert [s.status for s in store.sweeps.all()] == ["finished"]
    with pytest.raises(InputError, match="no sweep of nightly was interrupted"):
        sweep(folder, resume=True)
    assert sweep(folder, resume=True, or_begin=True, only="dense")["sweep"] != document["sweep"]


NIGHT = """\
name: nightly
dag: dag.yaml
night: {minutes: 60}
models:
  - {path: one, tags: [a]}
  - {path: two, tags: [a]}
  - three
"""


def ended_after(model: str, monkeypatch: pytest.MonkeyPatch) -> CallbackObserver:
    """Moves the clock past the end of the night once a model has begun."""

    def listen(event: str, **values: Any) -> None:
        if event == "trial_ends" and runs == [model]:
            monkeypatch.setattr(time, "monotonic", lambda: clock() + 3600.0)
        if event == "model_begins":
            runs[:] = [values["name"]]

    clock, runs = time.monotonic, [""]
    return CallbackObserver(listen)


def test_a_night_whose_time_is_up_goes_on_the_next_night(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, model in {"one": cnn(), "two": mlp(), "three": cnn()}.items():
        write(model, by_size(folder) / name)
    (folder / "zoo.yaml").write_text(NIGHT)
    with monkeypatch.context() as patched:
        first = sweep(folder, nightly=True, observer=ended_after("two", patched))
    assert (list(models(first)), first["not_run"]) == (["one", "two"], ["three"])
    begun: list[str] = []
    observer = CallbackObserver(lambda event, **v: begun.append(v["name"]) if event == "model_begins" else None)
    second = sweep(folder, nightly=True, observer=observer)
    assert begun[0] == "three"
    assert list(models(second)) == ["one", "two", "three"]
    assert second["not_run"] == []
    # Those left out are no regressions. Others may be: their latencies are real ones.
    assert "three" not in sweep(folder, only="a")["regressions"]


def test_models_that_vanish_are_missing_until_accepted_or_removed(folder: Path) -> None:
    (folder / "many").mkdir()
    for name in ("a", "b"):
        (folder / "many" / f"{name}.onnx").write_bytes(b"nonsense")

    def night(lines: str = "  - many\n", **options: Any) -> dict[str, tuple[str, str]]:
        (folder / "zoo.yaml").write_text(f"name: nightly\ndag: dag.yaml\nmodels:\n{lines}")
        document = sweep(folder, **options)
        found = {name: (e["status"], e["compared"]["verdict"]) for name, e in models(document).items()}
        assert document["regressions"] == [name for name, (status, _) in found.items() if status == "missing"]
        return found

    new, same, missing = ("refused", "new"), ("refused", "same"), ("missing", "missing")
    assert night() == {"a": new, "b": new}
    (folder / "many" / "b.onnx").rename(folder / "b.onnx")
    for accept in (False, True):
        assert night(accept=accept) == {"a": same, "b": missing}
    assert night() == {"a": same}
    (folder / "b.onnx").rename(folder / "many" / "b.onnx")
    assert night() == {"a": same, "b": same}
    assert night("  - many\n  - many/b.onnx\n") == {"a": same, "b": new}  # not missing, but listed by itself

    for name in ("a", "b"):
        (folder / "many" / f"{name}.onnx").unlink()
    for verdict in (new, same):  # the folder is empty; the others go on
        assert night("  - many\n  - bad.onnx\n") == {"many": verdict, "bad": verdict, "a": missing}
    assert night("  - bad.onnx\n") == {"bad": same}


def test_a_tag_that_no_model_has(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no model has the tag 'gpu'"):
        sweep(folder, only="gpu")


def test_a_folder_gives_its_models_and_those_of_its_archives(folder: Path) -> None:
    (folder / "many" / "deep").mkdir(parents=True)
    (folder / "more.zip").rename(folder / "many" / "deep" / "more.zip")
    (folder / "mlp" / "model.onnx").rename(folder / "many" / "plain.onnx")
    (folder / "many" / ".autoopt").mkdir()
    (folder / "many" / ".autoopt" / "kept.onnx").touch()
    (folder / "many" / "broken.zip").write_bytes(b"nonsense")
    found = items(load_zoo({"name": "z", "dag": str(folder / "dag.yaml"), "models": [str(folder / "many")]}), folder)
    assert {item.name: bool(item.reason) for item in found} == {"broken": True, "more": False, "plain": False}


def test_models_in_archives_and_folders_behind_addresses(folder: Path) -> None:
    (folder / "far" / "deep").mkdir(parents=True)
    inside, far = (folder / "more.zip").as_uri(), (folder / "far").as_uri()
    (folder / "far" / "deep" / "more.zip").write_bytes((folder / "more.zip").read_bytes())
    paths = [f"zip://deep/net.onnx::{inside}", f"zip://**/*.onnx::{inside}", f"{far}/"]
    found = items(load_zoo({"name": "z", "models": paths}), folder / "home")
    assert [item.name for item in found] == ["net", "net-2", "more"]
    assert [item.called for item in found] == ["net", "net", "more"]
    read = {fetch(item.path, folder / "home").read_bytes() for item in found}
    assert read == {(folder / "made" / "model.onnx").read_bytes()}


def test_a_lasting_change_fails_the_night_that_proves_it_and_no_other(folder: Path) -> None:
    goal = "passes: [dynamic_quantization]\nchains: [[dynamic_quantization]]\nobjectives: [{metric: size}]\n"
    (folder / "dag.yaml").write_text(f"name: small\n{goal}constraints: []\n")
    (folder / "zoo.yaml").write_text("name: nightly\ndag: dag.yaml\nmodels: [mlp]\n")
    tonight = SweepResult.from_json(sweep(folder, nightly=True))
    smaller = [with_size(tonight, 0.9)] * 12
    with open_store(None, folder / "home") as store:
        for night in [*smaller, tonight, tonight]:
            record = store.sweeps.create(SweepRecord(id="", name="nightly", settings={"only": None}))
            store.sweeps.finish(record.id, "finished", replace(night, sweep=record.id).to_json())
    proof = sweep(folder, nightly=True)
    compared = models(proof)["mlp"]["compared"]
    assert (proof["regressions"], compared["verdict"]) == (["mlp"], "worse")
    assert compared["changes"][0]["what"].startswith("best model, for good 11 % larger since ")
    assert sweep(folder, nightly=True)["regressions"] == []


def with_size(result: SweepResult, factor: float) -> SweepResult:
    """The sweep with another size of its only model's best model."""
    [entry] = result.models
    assert entry.result is not None
    ratios = {**entry.best.ratios, "size": Estimate.exact(factor * entry.best.ratios["size"].value)}
    best = replace(entry.best, ratios=ratios)
    return replace(result, models=(replace(entry, result=replace(entry.result, best=best)),))
