"""Sources that a request names: read by workers only, once for each content."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from simulation import INSPECTION, SOURCE, ReadingPool, Simulation, write_model, written_data

from autoopt.data.description import DataDescription
from autoopt.data.digest import digest
from autoopt.errors import InputError
from autoopt.model.inspection import Inspection
from autoopt.outcome import Outcome
from autoopt.problem import named_sources as sources
from autoopt.problem.named_sources import (
    admit,
    data_source,
    describe_data,
    describe_script,
    digest_script,
    execution_providers,
)
from autoopt.problem.problem import DataSource
from autoopt.registry import DESCRIBE
from autoopt.spec.targets import TargetSpec
from autoopt.target import Accelerator
from autoopt.workers import CallResult


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ReadingPool:
    pool = ReadingPool()
    monkeypatch.setattr("simulation.SimulatedPool", lambda: pool)
    return pool


@pytest.fixture
def simulation(tmp_path: Path, pool: ReadingPool) -> Simulation:
    return Simulation(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model({**SOURCE, "passes": ["mine"]}, tmp_path / "mine")


def test_a_model_is_copied_and_inspected_once(simulation: Simulation, pool: ReadingPool, model: Path) -> None:
    candidate, inspection = admit(simulation.resources, model)
    assert inspection == INSPECTION
    assert simulation.model(candidate)["passes"] == ["mine"]
    assert admit(simulation.resources, model)[0] == candidate
    assert pool.functions == [sources.ADMIT, sources.INSPECT, sources.LAYER_WORK]


def test_the_work_of_a_model_without_layers_is_not_counted(
    simulation: Simulation, pool: ReadingPool, model: Path
) -> None:
    pool.answers[sources.INSPECT] = replace(INSPECTION, layer_parameters={}, layer_work={}).to_json()
    assert not admit(simulation.resources, model)[1].layer_work
    assert pool.functions == [sources.ADMIT, sources.INSPECT]


def test_a_model_whose_copy_is_damaged_is_admitted_again(
    simulation: Simulation, pool: ReadingPool, model: Path
) -> None:
    candidate, _ = admit(simulation.resources, model)
    copy = simulation.resources.store.artifacts.path(candidate.artifact)
    copy.chmod(0o644)
    copy.write_text("damaged")
    assert admit(simulation.resources, model)[0] == candidate
    assert pool.functions == [sources.ADMIT, sources.INSPECT, sources.LAYER_WORK, sources.ADMIT]
    assert simulation.model(candidate)["passes"] == ["mine"]


def test_nothing_is_left_in_the_scratch_folder(simulation: Simulation, model: Path) -> None:
    admit(simulation.resources, model)
    assert list(simulation.resources.scratch.iterdir()) == []


def test_a_missing_model_is_named(simulation: Simulation, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.onnx: no such model file"):
        admit(simulation.resources, tmp_path / "gone.onnx")


def test_a_model_that_crashes_its_reader_is_one_line(simulation: Simulation, pool: ReadingPool, model: Path) -> None:
    pool.answers[sources.INSPECT] = CallResult(Outcome.CRASHED, message="the worker died: SIGSEGV", died=True)
    with pytest.raises(InputError, match=r"model\.onnx: reading it crashes the process"):
        admit(simulation.resources, model)


def test_shape_inference_that_crashes_says_nothing_against_a_model(
    simulation: Simulation, pool: ReadingPool, model: Path
) -> None:
    pool.answers[sources.LAYER_WORK] = CallResult(Outcome.CRASHED, message="the worker died: SIGSEGV", died=True)
    _, inspection = admit(simulation.resources, model)
    assert inspection.layer_work == {}
    assert inspection.op_counts == INSPECTION.op_counts
    assert not simulation.resources.store.events.all(kind="worker death")


def test_data_has_absolute_paths_and_a_digest_of_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 3), np.float32))
    first = data_source("d.npz", tmp_path)
    assert first.config is not None
    assert first.config["path"] == str(tmp_path / "d.npz")
    np.savez(tmp_path / "d.npz", x=np.ones((2, 3), np.float32))
    assert data_source("d.npz", tmp_path).digest != first.digest


def test_no_data_is_an_empty_source(tmp_path: Path) -> None:
    assert data_source(None, tmp_path) == DataSource()


def test_data_is_described_by_a_worker(simulation: Simulation, pool: ReadingPool, tmp_path: Path) -> None:
    pool.answers[sources.DESCRIBE_DATA] = {"labels": True}
    data = written_data(tmp_path)
    assert describe_data(simulation.resources, data, tmp_path) == DataDescription(labels=True)
    assert describe_data(simulation.resources, DataSource(), tmp_path) is None
    assert pool.functions == [sources.DESCRIBE_DATA]


def test_data_that_cannot_be_read_is_named(simulation: Simulation, pool: ReadingPool, tmp_path: Path) -> None:
    pool.answers[sources.DESCRIBE_DATA] = CallResult(Outcome.TIMEOUT)
    with pytest.raises(InputError, match=r"d\.npz: reading it takes more than 60 s"):
        describe_data(simulation.resources, written_data(tmp_path), tmp_path, "model")


@pytest.mark.parametrize(
    ("config", "times"),
    [
        ({"path": "d.npz"}, 1),
        ({"load_dataset": {"type": "synthetic"}}, 1),
        ({"path": "d.npz", "user_script": "mine.py"}, 2),
        ({"data_name": "mnist"}, 2),
    ],
)
def test_data_in_files_are_described_once(
    simulation: Simulation,
    pool: ReadingPool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, object],
    times: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    pool.answers[sources.DESCRIBE_DATA] = {"items": 3}
    for file in ("d.npz", "mine.py"):
        Path(tmp_path, file).touch()
    data = DataSource(config, digest(config))
    for _ in range(2):
        found = describe_data(simulation.resources, data, tmp_path, "model")
        assert found == DataDescription(items=3)
    assert len(pool.functions) == times


@pytest.mark.parametrize("changed", ["data", "model"])
def test_other_data_and_models_are_described_anew(
    simulation: Simulation, pool: ReadingPool, tmp_path: Path, changed: str
) -> None:
    pool.answers[sources.DESCRIBE_DATA] = {"items": 3}
    describe_data(simulation.resources, written_data(tmp_path), tmp_path, "model")
    pool.answers[sources.DESCRIBE_DATA] = {"items": 4}
    content, artifact = (b"others", "model") if changed == "data" else (b"items", "other")
    found = describe_data(simulation.resources, written_data(tmp_path, content), tmp_path, artifact)
    assert found == DataDescription(items=4)


def test_a_script_tells_its_passes_and_metrics(pool: ReadingPool) -> None:
    metric = {"name": "cost", "unit": "euro", "direction": "minimize", "kind": "custom", "summary": "the cost"}
    pool.answers[DESCRIBE] = {"passes": [], "metrics": [metric]}
    described = describe_script(pool, Path("mine.py"), Accelerator())
    assert described.passes == ()
    assert [metric.unit for metric in described.metrics] == ["euro"]
    assert describe_script(pool, None, Accelerator()).metrics == ()


def test_the_cpus_provider_is_known_without_asking(pool: ReadingPool) -> None:
    assert execution_providers(pool, TargetSpec(), {}) == ("CPUExecutionProvider",)
    assert pool.functions == []


def test_other_providers_are_asked_of_the_runtime_that_measures(pool: ReadingPool) -> None:
    target = TargetSpec(execution_provider="CUDAExecutionProvider")
    pool.answers[sources.RUNTIME] = {"providers": ["CPUExecutionProvider"]}
    assert execution_providers(pool, target, {}) == ("CPUExecutionProvider",)
    assert execution_providers(pool, target, {"providers": ["CUDAExecutionProvider"]}) == ("CUDAExecutionProvider",)
    assert pool.functions == [sources.RUNTIME]


def test_the_digest_of_a_script_is_the_digest_of_its_bytes(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text("a = 1\n")
    first = digest_script(script)
    script.write_text("a = 2\n")
    assert digest_script(script) != first
    with pytest.raises(InputError, match="no such user script"):
        digest_script(tmp_path / "gone.py")


def test_an_inspection_is_json() -> None:
    assert Inspection.from_json(json.loads(json.dumps(INSPECTION.to_json()))) == INSPECTION
