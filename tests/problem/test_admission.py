"""Models are copied into the store and inspected by workers only, once for each content."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import builders
import pytest
from simulation import INSPECTION, SOURCE, ReadingPool, Simulation, write_model

from autoopt.engine.prepare import prepare
from autoopt.errors import InputError
from autoopt.model import worker
from autoopt.model.files import split_source
from autoopt.outcome import Outcome
from autoopt.problem.admission import admit
from autoopt.problem.reading import ADMIT, INSPECT
from autoopt.problem.resolve import make_plan
from autoopt.problem.run_request import RunRequest
from autoopt.workers import CallResult


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model({**SOURCE, "passes": ["mine"]}, tmp_path / "mine")


def test_a_model_is_copied_and_inspected_once(simulation: Simulation, pool: ReadingPool, model: Path) -> None:
    candidate, inspection = admit(simulation.resources, model)
    assert inspection == INSPECTION
    assert simulation.model(candidate)["passes"] == ["mine"]
    assert admit(simulation.resources, model)[0] == candidate
    assert pool.functions == [ADMIT, INSPECT]


def test_a_model_whose_copy_is_damaged_is_admitted_again(
    simulation: Simulation, pool: ReadingPool, model: Path
) -> None:
    candidate, _ = admit(simulation.resources, model)
    copy = simulation.resources.store.artifacts.path(candidate.artifact)
    copy.chmod(0o644)
    copy.write_text("damaged")
    assert admit(simulation.resources, model)[0] == candidate
    assert pool.functions == [ADMIT, INSPECT, ADMIT]
    assert simulation.model(candidate)["passes"] == ["mine"]


def test_nothing_is_left_in_the_scratch_folder(simulation: Simulation, model: Path) -> None:
    admit(simulation.resources, model)
    assert list(simulation.resources.scratch.iterdir()) == []


def test_a_missing_model_is_named(simulation: Simulation, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.onnx: no such model file"):
        admit(simulation.resources, tmp_path / "gone.onnx")


def test_a_model_that_crashes_its_reader_is_one_line(simulation: Simulation, pool: ReadingPool, model: Path) -> None:
    pool.answers[INSPECT] = CallResult(Outcome.CRASHED, message="the worker died: SIGSEGV", died=True)
    with pytest.raises(InputError, match=r"model\.onnx: reading it crashes the process"):
        admit(simulation.resources, model)


DAG = {"name": "d", "passes": {"s": "simplify"}, "chains": [["s"]]}


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_a_run_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"never read")
    with pytest.raises(InputError, match=r"pip install 'autoopt\[torch\]'"):
        prepare(RunRequest(dag=DAG, model=tmp_path / "net.pt2", home=tmp_path / "home"))


def test_the_onnx_flavour_of_mlflow_is_the_model_it_names(tmp_path: Path) -> None:
    folder = builders.write(builders.mlp(), tmp_path / "saved").parent
    (folder / "MLmodel").write_text("artifact_path: model\nflavors:\n  onnx: {data: model.onnx}\n")
    found = worker.admit({"source": str(folder), "dest": str(tmp_path / "dest")})
    assert list(found["files"]) == ["model.onnx"]


def test_a_plan_says_that_the_model_has_to_be_converted(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"never read")
    with pytest.raises(InputError, match="autoopt apply torch_export"):
        make_plan(DAG, tmp_path / "net.pt2")


def test_a_source_may_name_a_function_of_a_script() -> None:
    assert split_source("a/net.py:build") == ("a/net.py", "build")
    assert split_source("net.py") == ("net.py", "")
    assert split_source("s3://bucket/net.onnx") == ("s3://bucket/net.onnx", "")
