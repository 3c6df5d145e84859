"""The package that a run leaves."""

from __future__ import annotations

import ast
import errno
import json
import runpy
import shutil
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from builders import mlp

import autoopt
from autoopt.engine.run import export as package_files
from autoopt.engine.run.export import export, export_best, export_to
from autoopt.engine.run.package import RECIPE, Package
from autoopt.errors import InputError, SystemFailure
from autoopt.json_codec import to_json
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.model.files import digest_file
from autoopt.observer import Observer
from autoopt.outcome import Outcome
from autoopt.results import ModelResult, RunResult, source_result
from autoopt.store import ModelRecord, PassRunRecord, RunRecord, Store, open_store
from autoopt.target import Target
from autoopt.workers import CallResult, Gate, WorkerPool

FILES = {"README.md", "inputs.npz", "model.onnx", "recipe.json", "requirements.txt", "run.py", "session.json"}
LARGE = 100_000
"""Width of a model of more than 3 MB."""


class Refusing(WorkerPool):
    """A pool whose workers cannot read the data."""

    def __init__(self) -> None:
        super().__init__(size=1)

    def call(self, *_: object, **__: object) -> CallResult:
        return CallResult(Outcome.REFUSED, message="no such file")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(None, tmp_path / "home")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The user's model, with a licence and external data of more than 3 MB."""
    model = mlp(width=LARGE)
    model.metadata_props.add(key="license", value="CC-BY-4.0")
    path = tmp_path / "user" / "net.onnx"
    (path.parent / "weights").mkdir(parents=True)
    onnx.save(model, path, save_as_external_data=True, location="weights/net.bin")
    return path


@pytest.fixture
def package(store: Store, source: Path, tmp_path: Path) -> Package:
    """A package of a model with external data, made from `source` by one pass."""
    admitted = tmp_path / "admitted"
    shutil.copytree(source.parent / "weights", admitted / "weights")
    shutil.copyfile(source, admitted / "model.onnx")
    digest = store.artifacts.put(admitted)
    made = tmp_path / "made"
    made.mkdir()
    onnx.save(mlp(width=LARGE), made / "model.onnx", save_as_external_data=True, location="model.onnx.data")
    model = ModelResult(
        artifact=store.artifacts.put(made),
        session_options={"intra_op_num_threads": 1},
        chain="simplify",
        metrics={"latency_p50": 1.0, "size": 5.0},
        ratios={"latency_p50": Estimate(1.0, 0.01, 100.0), "size": Estimate.exact(0.5)},
    )
    store.models.add(ModelRecord(digest, "net"))
    step = PassRunRecord("k", "simplify", {"engine": "onnxsim"}, Candidate(digest), Outcome.OK, model.candidate)
    store.results.finish_pass_run(step)
    data = tmp_path / "data.npz"
    np.savez(data, x=np.ones((3, 8), np.float32))
    settings: dict[str, Any] = {
        "request": {"model": str(source)},
        "replay_environment": {"calibration": None, "user_script": "mine.py"},
        "target": to_json(Target(threads=1)),
        "measurement": {"batch_size": 2},
        "latency_data": {"path": str(data)},
    }
    run = store.runs.create(RunRecord(id="", name="net", identity="i", model=digest, settings=settings))
    result = RunResult(
        run.id, "finished", baseline=source_result(digest, metrics={"latency_p50": 1.0, "size": 10.0}), best=model
    )
    return Package(run, result, model)


def with_settings(package: Package, **settings: Any) -> Package:
    return replace(package, run=replace(package.run, settings={**package.settings, **settings}))


def recipe_of(out: Path) -> dict[str, Any]:
    recipe: dict[str, Any] = json.loads((out / "recipe.json").read_text())
    return recipe


def run_script(out: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Lines that the package's run.py prints."""
    capsys.readouterr()
    runpy.run_path(str(out / "run.py"))["main"](["--seconds", "0.01", *arguments])
    return capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("kept_workers")
def test_a_moved_package_runs_and_is_timed_against_its_source(
    store: Store, package: Package, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = export(store, package, tmp_path / "out")
    assert path == tmp_path / "out" / "model.onnx"
    assert {file.name for file in path.parent.iterdir()} == {*FILES, "model.onnx.data"}
    assert (path.parent / "model.onnx.data").stat().st_size > 3e6
    moved = (tmp_path / "out").rename(tmp_path / "elsewhere")

    lines = run_script(moved, capsys)
    assert "input    x: float32 [2, 8]" in lines
    assert "output   y: float32 [2, 4]" in lines
    assert f"source   {source}" in lines
    # Other programs decide which of the two.
    assert lines[-1].endswith(("the same gain.", "or more.", "none needed here.", "repeat it with --seconds 30."))

    source.write_bytes(b"another model")
    assert f"source   {store.artifacts.path(package.run.model)}" in run_script(moved, capsys)
    assert autoopt.load(moved).run(None, {"x": np.ones((2, 8), np.float32)})[0].shape == (2, 4)
    assert "licence: CC-BY-4.0" in (moved / "README.md").read_text()


@pytest.mark.usefixtures("kept_workers")
def test_weights_of_the_source_go_when_a_better_model_replaces_it(
    store: Store, package: Package, tmp_path: Path
) -> None:
    source = replace(package.model, artifact=package.run.model, chain="source")
    export(store, replace(package, model=source), tmp_path / "out")
    assert recipe_of(tmp_path / "out")["model_files"] == ["model.onnx", "weights/net.bin"]
    export(store, package, tmp_path / "out")
    assert recipe_of(tmp_path / "out")["model_files"] == ["model.onnx", "model.onnx.data"]
    assert not (tmp_path / "out" / "weights" / "net.bin").exists()


@pytest.mark.usefixtures("kept_workers")
def test_without_its_source_the_model_is_timed_alone(
    store: Store, package: Package, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(store, package, tmp_path / "out")
    shutil.rmtree(store.home)
    source.write_bytes(b"another model")
    assert "The source model has changed since" in run_script(tmp_path / "out", capsys)[-1]
    source.unlink()
    last = run_script(tmp_path / "out", capsys)[-1]
    assert "ms per inference. The source model is not on this machine" in last
    assert last.endswith("name it with --source MODEL.")


def test_the_script_needs_only_onnxruntime_and_numpy(store: Store, package: Package, tmp_path: Path) -> None:
    export(store, package, tmp_path / "out", Refusing())
    modules: set[str] = set()
    for node in ast.walk(ast.parse((tmp_path / "out" / "run.py").read_text())):
        if isinstance(node, ast.Import):
            modules.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module).partition(".")[0])
    assert modules - sys.stdlib_module_names == {"numpy", "onnxruntime"}
    assert [line.partition("==")[0] for line in (tmp_path / "out" / "requirements.txt").read_text().split()] == [
        "onnxruntime",
        "numpy",
    ]


def test_the_recipe_has_all_that_makes_the_model_again(
    store: Store, package: Package, source: Path, tmp_path: Path
) -> None:
    export(store, with_settings(package, measurement={"affinity": [0]}), tmp_path / "out", Refusing())
    recipe = recipe_of(tmp_path / "out")
    made = package.model.artifact
    assert (recipe["recipe"], recipe["source"], recipe["result"]) == (RECIPE, package.run.model, made)
    assert recipe["steps"] == [{"pass": "simplify", "params": {"engine": "onnxsim"}, "output": made}]
    assert recipe["user_script"] == "mine.py"
    assert recipe["ratios"]["size"] == {"value": 0.5, "low": 0.5, "high": 0.5}
    assert "onnx" in str(recipe["environment"])
    assert (recipe["target"]["threads"], recipe["affinity"]) == (1, [0])
    assert recipe["source_files"][0] == {"path": str(source), "sha256": digest_file(source)}


def test_the_session_is_that_of_the_measurement(store: Store, package: Package, tmp_path: Path) -> None:
    """The options of the model come first, then the threads of the target."""
    tuned = replace(package, model=replace(package.model, session_options={"graph_optimization_level": "layout"}))
    store.results.finish_pass_run(
        PassRunRecord("t", "session_tuning", {}, package.model.candidate, Outcome.OK, tuned.model.candidate)
    )
    for name, each, threads in (("own", package, 1), ("target", tuned, 4)):
        settings = {"target": to_json(Target(threads=4)), "measurement": {"affinity": [2, 3]}}
        export(store, with_settings(each, **settings), tmp_path / name, Refusing())
        session = json.loads((tmp_path / name / "session.json").read_text())
        assert session["session_options"]["intra_op_num_threads"] == threads
        assert session["inference_session"]["providers"] == ["CPUExecutionProvider"]
        assert session["affinity"] == [2, 3]
        assert recipe_of(tmp_path / name)["source_session"]["session_options"]["intra_op_num_threads"] == 4
    assert session["session_options"]["graph_optimization_level"] == "ORT_ENABLE_LAYOUT"


def test_data_that_cannot_be_read_leave_the_inputs_out(store: Store, package: Package, tmp_path: Path) -> None:
    export(store, package, tmp_path / "out", Refusing())
    assert {file.name for file in (tmp_path / "out").iterdir()} == {*FILES, "model.onnx.data"} - {"inputs.npz"}
    assert "--inputs FILE.npz" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.usefixtures("kept_workers")
def test_a_second_package_has_the_same_inputs_without_a_worker(store: Store, package: Package, tmp_path: Path) -> None:
    with WorkerPool(size=1) as pool:
        export(store, package, tmp_path / "one", pool)
    export(store, package, tmp_path / "two", Refusing())
    for name in ("inputs.npz", "README.md"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    np.savez(tmp_path / "data.npz", x=np.zeros((3, 8), np.float32))
    export(store, package, tmp_path / "three", Refusing())
    assert not (tmp_path / "three" / "inputs.npz").exists()


def test_an_impatient_package_is_written_beside_a_measurement(
    store: Store, package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOOPT_GATE", str(tmp_path))
    out = tmp_path / "out"
    with ThreadPoolExecutor(1) as executor, Gate(tmp_path).measuring():
        path = executor.submit(export, store, replace(package, patience=0.05), out).result()
    assert path == out / "model.onnx"
    assert {file.name for file in out.iterdir()} >= FILES


def test_existing_files_are_replaced_and_no_other_file_is_left(store: Store, package: Package, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.onnx").write_bytes(b"of an earlier run")
    (out / "inputs.npz").write_bytes(b"of an earlier run")
    (out / "notes.txt").write_text("mine")
    export(store, package, out, Refusing())
    assert (out / "model.onnx").read_bytes() != b"of an earlier run"
    assert {file.name for file in out.iterdir()} == {*FILES, "model.onnx.data", "notes.txt"} - {"inputs.npz"}
    assert (out / "recipe.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.usefixtures("kept_workers")
def test_a_zip_file_holds_the_package_in_a_folder_of_its_name(store: Store, package: Package, tmp_path: Path) -> None:
    out = tmp_path / "new" / "net.zip"
    assert export_to(store, package, out) == out
    with zipfile.ZipFile(out) as archive:
        assert set(archive.namelist()) == {f"net/{name}" for name in (*FILES, "model.onnx.data")}
    (tmp_path / "folder.zip").mkdir()
    with pytest.raises(InputError, match=r"is a folder, not a \.zip file"):
        export_to(store, package, tmp_path / "folder.zip")


def test_a_folder_that_cannot_be_written_is_the_users_error(store: Store, package: Package, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file/out: cannot write the results"):
        export(store, package, tmp_path / "file" / "out", Refusing())
    result = replace(package.result, best=package.model)
    with pytest.raises(InputError, match=f"the result is in the store: autoopt export {package.run.id} -o FOLDER"):
        export_best(store, package.run, result, tmp_path / "file" / "out", Refusing(), Observer())


def test_a_full_disk_is_not_the_users_error(
    store: Store, package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(package_files, "_write_package", full)
    result = replace(package.result, best=package.model)
    with pytest.raises(SystemFailure, match=r"No space left on device\); the result is in the store"):
        export_best(store, package.run, result, tmp_path / "out", Refusing(), Observer())
