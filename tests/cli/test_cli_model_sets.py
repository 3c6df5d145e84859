"""The commands on several models that belong together."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import builders
import model_sets
import numpy as np
import pytest

import autoopt

Call = Any


@pytest.fixture
def folder(home: Path) -> Path:
    model_sets.write_pair(home.parent)
    return home.parent


def test_commands_read_a_finished_run(call: Call, folder: Path) -> None:
    """One run for all commands, because it takes longer than they do."""
    said = call("run", "pair.yaml", "--json")
    assert said.code == 0, said.err
    run = json.loads(said.out)
    best = call("runs", "latest")
    assert "model first:" in best.out
    assert best.out.splitlines()[-1].endswith(f"Get it: autoopt export {run['run']}")
    assert "first + second" in call("runs").out
    lineage = call("lineage")
    assert [line for line in lineage.out.splitlines() if line.startswith("model")] == ["model first", "model second"]
    assert lineage.out.count("1. dynamic_quantization") == 2
    models = json.loads(call("lineage", "--json").out)["models"]
    assert [len(models[name]["steps"]) for name in ("first", "second")] == [1, 1]
    assert call("report").code == 0
    page = (folder / "report.html").read_text()
    assert "autoopt replay out/second/recipe.json" in page
    assert page.count("How the chosen model was made") == 2
    trial = call("export", "latest", "0")
    assert trial.code == 2
    assert f"name the run of one: {run['parts'][0]['run']} (first)" in trial.err
    check_packages(call, run["run"], folder)


def check_packages(call: Call, run: str, folder: Path) -> None:
    """A package is a folder or an archive with the same files, and opens as one session."""
    assert call("export", run, "-o", "set.zip").out.startswith("wrote set.zip: first: quant; second: quant: ")
    with zipfile.ZipFile(folder / "set.zip") as archive:
        names = {name.removeprefix("set/") for name in archive.namelist()}
    files = {str(file.relative_to(folder / "out")) for file in (folder / "out").rglob("*") if file.is_file()}
    assert names ^ files == set()
    assert call("export", "latest", "-o", "again").code == 0
    x = np.load(folder / "x.npz")["x"]
    outputs = [autoopt.load(folder / name).run(None, {"x": x})[0] for name in ("out", "again")]
    np.testing.assert_array_equal(*outputs)


def test_a_plan_has_the_chains_of_each_model(call: Call, folder: Path) -> None:
    said = call("plan", "pair.yaml")
    assert said.code == 0, said.err
    assert [line for line in said.out.splitlines() if line.startswith("model")] == ["model first", "model second"]
    document = json.loads(call("plan", "first=first/model.onnx", "second=second/model.onnx", "--json").out)
    assert [model["name"] for model in document["models"]] == ["first", "second"]
    assert all(model["chain_count"] for model in document["models"])


def test_a_written_dag_names_the_models_and_runs(call: Call, folder: Path) -> None:
    builders.write(builders.mlp(width=1000, classes=8), folder / "first")  # large enough for integers
    said = call("init", "a=first/model.onnx", "b=second/model.onnx", "--data", "x.npz")
    assert said.code == 0, said.err
    assert "the largest model" in said.out
    text = (folder / "a-b.yaml").read_text()
    assert "model: {a: first/model.onnx, b: second/model.onnx}" in text
    assert "pass: dynamic_quantization" in text  # lossy passes too, because a set has data in any case
    assert call("plan", "a-b.yaml").code == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"data": {"evaluation": "x.npz", "latency": "x.npz"}}, "data.latency: times of several models"),
        ({"model": {"first": "first/model.onnx", "second": "gone.onnx"}}, "model.second: no such file: gone.onnx"),
        ({"connections": {"second.x": "first.z"}}, "connections.second.x: no output 'first.z'"),
        ({"connections": {}}, "model.first: 'first' takes nothing from the other models"),
    ],
)
def test_mistakes_are_one_line_with_their_place(call: Call, folder: Path, fields: dict[str, Any], said: str) -> None:
    model_sets.write_pair(folder, **fields)
    refused = call("run", "pair.yaml", "-q")
    assert refused.code == 2
    assert refused.err.startswith("pair.yaml:")
    assert said in refused.err
    assert refused.err.count("\n") == 1


def test_a_sweep_runs_a_dag_of_several_models_beside_single_models(call: Call, folder: Path) -> None:
    single = {name: field for name, field in model_sets.PAIR.items() if name not in ("model", "connections")}
    (folder / "one.json").write_text(json.dumps(single))
    models = ["first/model.onnx", {"path": "pair.yaml", "name": "both"}]
    (folder / "zoo.json").write_text(json.dumps({"name": "z", "dag": "one.json", "models": models}))
    first = json.loads(call("sweep", "zoo.json", "--json").out)
    assert [(model["name"], model["status"]) for model in first["models"]] == [("first", "ok"), ("both", "ok")]
    assert (folder / "out" / "both" / "model_set.json").is_file()
    again = call("sweep", "zoo.json", "--nightly", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["regressions"] == []
