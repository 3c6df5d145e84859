"""`autoopt sweep`, `nights`, and `report --zoo`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from builders import mlp, write
from onnxruntime import InferenceSession

import autoopt
from autoopt.results import EntryComparison, SweepEntry, SweepResult
from autoopt.settings import settings
from autoopt.store import SweepRecord, open_store

ZOO = "name: z\ndag: dag.yaml\nmodels: [mlp]\n"
DAG = "name: d\npasses: [name_fix, ir_upgrade]\nchains: [[name_fix], [ir_upgrade]]\nobjectives: [{metric: size}]\n"
DAG += "constraints: []\nmeasurement: {seconds: 0.1, replicas: 2, rounds: 1}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "dag.yaml").write_text("name: d\npasses: [name_fix]\nchains: [[name_fix]]\n")
    (tmp_path / "m.onnx").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.delenv("TZ", raising=False)
    settings.cache_clear()
    return tmp_path


def test_a_zoo_is_checked_with_junit_and_a_summary(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(mlp(), tmp_path / "mlp")
    (tmp_path / "zoo.yaml").write_text(ZOO)
    (tmp_path / "dag.yaml").write_text(DAG)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    said = call("check", "zoo.yaml", "--quiet")
    assert (said.code, "not measured" in said.out) == (1, True)
    assert call("sweep", "zoo.yaml", "--trials", "1", "--quiet").code == 0
    code, out, err = call("check", "zoo.yaml", "--junit", "junit.xml", "--quiet")
    assert code == 0, err
    runs = json.loads(call("runs", "--json").out)
    assert [run["result"]["trials"]["total"] for run in runs] == [1], "a check is no run to look at"
    assert "1 model: 1 ok" in out
    [case] = ElementTree.parse(tmp_path / "junit.xml").getroot()[0]
    assert (case.get("name"), case.find("failure")) == ("mlp", None)
    assert "**No regression in 1 model.**" in (tmp_path / "summary.md").read_text()
    said = call("check", "mlp/model.onnx", "--baseline", runs[0]["run"], "--quiet")
    first, *_, last = said.out.splitlines()
    assert (said.code, first, last) == (0, "check of mlp", "No regression in 1 model.")
    assert call("check", "mlp/model.onnx").err.startswith("mlp/model.onnx: is a model; name what was good: --baseline")
    code, out, err = call("check", "zoo.yaml", "--only", "gpu")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_check_of_a_package_reads_labels_where_they_are_now(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = InferenceSession(write(mlp(), tmp_path / "mlp"))
    x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    np.savez("then.npz", x=x, classes_of_items=source.run(None, {"x": x})[0].argmax(1))
    labelled = ("--data", "then.npz", "--label", "classes_of_items")
    assert call("run", "mlp/model.onnx", *labelled, "--trials", "1", "--quiet").code == 0
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "of_ci"))
    settings.cache_clear()
    (tmp_path / "then.npz").rename(tmp_path / "now.npz")
    said = call("check", "mlp/model.onnx", "--baseline", "out", "--quiet")
    assert (said.code, "not compared: accuracy" in said.out) == (0, True), said
    said = call("check", "mlp/model.onnx", "--baseline", "out", "--data", "now.npz", "--json")
    assert (said.code, json.loads(said.out)["models"][0]["best"]["metrics"]["accuracy"]) == (0, 1.0), said


HOSTILE = (
    ({"target": {"python": "evil.py"}}, (), "out: its model runs in another interpreter"),
    ({"evaluation": {"path": "x.npz", "user_script": "evil.py"}}, (), ""),
    ({"evaluation": {"user_script": "evil.py"}}, ("--data", "x.npz"), "--data: a script read the data"),
    ({"evaluation": {"user_script": "evil.py"}}, ("--data", "file://x.npz"), "--data: a script read the data"),
    ({"evaluation": [1]}, (), "out/recipe.json: no recipe that autoopt wrote"),
    ({"target": "cpu"}, (), "out/recipe.json: no recipe that autoopt wrote"),
    ({"session_options": 3}, (), "out/recipe.json: no recipe that autoopt wrote"),
)


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, the package of a run of it, and data."""
    folder = tmp_path_factory.mktemp("packaged")
    model = write(mlp(), folder / "mlp")
    autoopt.run(str(model), out=folder / "out", home=folder / "home", search={"trials": 1})
    np.savez(folder / "x.npz", x=np.zeros((4, 8), np.float32))
    return folder


@pytest.mark.parametrize(("forged", "options", "refusal"), HOSTILE)
def test_a_check_runs_nothing_that_a_recipe_names(
    forged: dict[str, Any],
    options: tuple[str, ...],
    refusal: str,
    packaged: Path,
    call: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(packaged, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("home"))
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "of_ci"))
    settings.cache_clear()
    script = tmp_path / "evil.py"
    script.write_text(f"#!/bin/sh\nopen({str(tmp_path / 'ran')!r}, 'w')\ntouch {tmp_path / 'ran'}\n")
    script.chmod(0o755)
    recipe = tmp_path / "out/recipe.json"
    document = json.dumps(json.loads(recipe.read_text()) | forged)
    recipe.write_text(document.replace("evil.py", str(script)))
    said = call("check", "mlp/model.onnx", "--baseline", "out", "--quiet", *options)
    assert (said.code, said.err.startswith(refusal), said.err.count("\n")) == (
        (2, True, 1) if refusal else (0, True, 0)
    )
    assert not (tmp_path / "ran").exists()


def test_a_check_measures_the_model_that_is_named_beside_that_of_a_run_or_of_a_package_alone(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(mlp(), tmp_path / "mlp")
    assert call("run", "mlp/model.onnx", "--trials", "1", "--quiet").code == 0
    [before] = json.loads(call("runs", "--json").out)
    (tmp_path / "cut.onnx").write_bytes((tmp_path / "mlp/model.onnx").read_bytes()[:100])
    said = call("check", "cut.onnx", "--baseline", "latest", "--quiet")
    assert (said.code, "cut.onnx: not an ONNX model, or cut off" in said.out) == (1, True), said
    assert [run["run"] for run in json.loads(call("runs", "--json").out)] == [before["run"]]
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "of_ci"))
    settings.cache_clear()
    said = call("check", "mlp/model.onnx", "--baseline", "out", "--quiet")
    assert (said.code, said.out.splitlines()[-1]) == (0, "No regression in 1 model."), said
    assert call("runs", "--json").out == "[]\n"
    said = call("check", "mlp/model.onnx", "--baseline", "out", "--data", "no.npz", "--quiet")
    assert (said.code, said.err) == (2, "--data: no such file or folder: no.npz\n")
    said = call("check", "mlp/model.onnx", "--baseline", before["run"], "--data", "test.npz", "--quiet")
    assert (said.code, said.err.startswith("--data: is for a package")) == (2, True)
    (tmp_path / "out/model.onnx").write_bytes((tmp_path / "mlp/model.onnx").read_bytes() + b"\x22\x00")
    said = call("check", "mlp/model.onnx", "--baseline", "out", "--quiet")
    assert (said.code, "is not the model of the recipe beside it" in said.out) == (1, True), said


def add_night(home: Path, status: str) -> str:
    with open_store(None, home) as store:
        sweep = store.sweeps.create(SweepRecord(id="", name="production")).id
        entry = SweepEntry("cnn", status, compared=EntryComparison("new"), environment={"host": "forge"})
        store.sweeps.finish(sweep, "finished", SweepResult(sweep=sweep, name="production", models=(entry,)).to_json())
    return sweep


def test_nights_are_listed_compared_and_written_as_a_page(call: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    first, second = add_night(home, "ok"), add_night(home, "failed")
    code, out, _ = call("nights")
    assert code == 0
    assert out.startswith("nights of production\n")
    assert out.index(second) < out.index(first)
    code, out, _ = call("nights", "production", "--compare", first, "latest")
    assert (code, "cnn    fails" in out) == (0, True)
    document = json.loads(call("nights", "--compare", first, "latest", "--json").out)
    assert (document["before"], document["models"]["cnn"]["sweep"]) == (first, first)
    code, out, _ = call("report", "--zoo", "production", "-o", str(tmp_path / "zoo.html"))
    assert (code, out) == (0, f"wrote {tmp_path / 'zoo.html'}\n")
    assert "zoo production" in (tmp_path / "zoo.html").read_text()
    code, out, err = call("nights", "other")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cnn" not in call("nights", "--worse").out
