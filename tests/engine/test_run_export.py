"""The files that a run leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoopt.engine.run.export import RECIPE, check_out, export
from autoopt.errors import InputError
from autoopt.metrics import Estimate
from autoopt.results import ModelResult
from autoopt.store.memory.store import MemoryStore

STEP = {"pass": "simplify", "params": {"engine": "onnxsim"}, "output": "d" * 64, "seconds": 1.0}


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "home")


@pytest.fixture
def model(store: MemoryStore, tmp_path: Path) -> ModelResult:
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"graph")
    (folder / "model.onnx.data").write_bytes(b"weights")
    return ModelResult(
        artifact=store.artifacts.put(folder),
        session_options={"intra_op_num_threads": 1},
        chain="simplify",
        metrics={"size": 5.0},
        ratios={"size": Estimate.exact(0.5)},
    )


def write(store: MemoryStore, model: ModelResult, out: Path) -> Path:
    environment = {"calibration": None, "user_script": "mine.py"}
    return export(store, model, out, source="s" * 64, steps=[STEP], replay_environment=environment)


def test_the_model_and_its_external_data_are_written(store: MemoryStore, model: ModelResult, tmp_path: Path) -> None:
    path = write(store, model, tmp_path / "out")
    assert path == tmp_path / "out" / "model.onnx"
    assert path.read_bytes() == b"graph"
    assert (tmp_path / "out" / "model.onnx.data").read_bytes() == b"weights"


def test_the_recipe_has_all_that_makes_the_model_again(store: MemoryStore, model: ModelResult, tmp_path: Path) -> None:
    write(store, model, tmp_path / "out")
    recipe = json.loads((tmp_path / "out" / "recipe.json").read_text())
    assert (recipe["recipe"], recipe["source"], recipe["result"]) == (RECIPE, "s" * 64, model.artifact)
    assert recipe["steps"] == [{"pass": "simplify", "params": {"engine": "onnxsim"}, "output": "d" * 64}]
    assert recipe["user_script"] == "mine.py"
    assert recipe["ratios"] == {"size": {"value": 0.5, "low": 0.5, "high": 0.5}}
    assert "onnx" in str(recipe["environment"])
    assert json.loads((tmp_path / "out" / "session.json").read_text()) == model.session_options


def test_existing_files_are_replaced_and_no_other_file_is_left(
    store: MemoryStore, model: ModelResult, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.onnx").write_bytes(b"of an earlier run")
    (out / "notes.txt").write_text("mine")
    write(store, model, out)
    assert (out / "model.onnx").read_bytes() == b"graph"
    names = {"model.onnx", "model.onnx.data", "notes.txt", "recipe.json", "session.json"}
    assert {file.name for file in out.iterdir()} == names
    assert (out / "recipe.json").stat().st_mode & 0o777 == 0o644


def test_a_folder_that_cannot_be_written_is_the_users_error(
    store: MemoryStore, model: ModelResult, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file/out: cannot write the results"):
        write(store, model, tmp_path / "file" / "out")


def test_a_folder_that_does_not_exist_yet_is_fine(tmp_path: Path) -> None:
    check_out(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()


def test_an_output_folder_that_is_a_file_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="is a file, not a folder for results"):
            check_out(out)
