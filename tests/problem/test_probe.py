"""Data, scripts and runtimes are read by workers; data in files once for each content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from simulation import INSPECTION, ReadingPool, Simulation, written_data

from autoopt.data.description import DataDescription
from autoopt.data.digest import digest
from autoopt.errors import InputError
from autoopt.model.inspection import Inspection
from autoopt.outcome import Outcome
from autoopt.problem.probe import Probe
from autoopt.problem.problem import DataSource
from autoopt.problem.reading import DESCRIBE_DATA, RUNTIME
from autoopt.registry import DESCRIBE
from autoopt.spec.targets import TargetSpec
from autoopt.target import Accelerator
from autoopt.workers import CallResult


def test_data_is_described_by_a_worker(simulation: Simulation, pool: ReadingPool, tmp_path: Path) -> None:
    pool.answers[DESCRIBE_DATA] = {"labels": True}
    data = written_data(tmp_path)
    assert Probe(simulation.resources).describe(data, tmp_path) == DataDescription(labels=True)
    assert Probe(simulation.resources).describe(DataSource(), tmp_path) is None
    assert pool.functions == [DESCRIBE_DATA]


def test_data_that_cannot_be_read_is_named(simulation: Simulation, pool: ReadingPool, tmp_path: Path) -> None:
    pool.answers[DESCRIBE_DATA] = CallResult(Outcome.TIMEOUT)
    with pytest.raises(InputError, match=r"d\.npz: reading it takes more than 60 s"):
        Probe(simulation.resources).describe(written_data(tmp_path), tmp_path, "model")


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
    pool.answers[DESCRIBE_DATA] = {"items": 3}
    for file in ("d.npz", "mine.py"):
        Path(tmp_path, file).touch()
    data = DataSource(config, digest(config))
    for _ in range(2):
        found = Probe(simulation.resources).describe(data, tmp_path, "model")
        assert found == DataDescription(items=3)
    assert len(pool.functions) == times


@pytest.mark.parametrize("changed", ["data", "model"])
def test_other_data_and_models_are_described_anew(
    simulation: Simulation, pool: ReadingPool, tmp_path: Path, changed: str
) -> None:
    pool.answers[DESCRIBE_DATA] = {"items": 3}
    Probe(simulation.resources).describe(written_data(tmp_path), tmp_path, "model")
    pool.answers[DESCRIBE_DATA] = {"items": 4}
    content, artifact = (b"others", "model") if changed == "data" else (b"items", "other")
    found = Probe(simulation.resources).describe(written_data(tmp_path, content), tmp_path, artifact)
    assert found == DataDescription(items=4)


def test_a_script_tells_its_passes_and_metrics(simulation: Simulation, pool: ReadingPool) -> None:
    metric = {"name": "cost", "unit": "euro", "direction": "minimize", "kind": "custom", "summary": "the cost"}
    pool.answers[DESCRIBE] = {"passes": [], "metrics": [metric]}
    described = Probe(simulation.resources).describe_script(Path("mine.py"), Accelerator())
    assert described.passes == ()
    assert [metric.unit for metric in described.metrics] == ["euro"]


def test_the_cpus_provider_is_known_without_asking(simulation: Simulation, pool: ReadingPool) -> None:
    assert Probe(simulation.resources).execution_providers(TargetSpec()) == {"CPUExecutionProvider": ""}
    assert pool.functions == []


def test_other_providers_are_asked_of_the_runtime(simulation: Simulation, pool: ReadingPool) -> None:
    target = TargetSpec(execution_provider="CUDAExecutionProvider")
    pool.answers[RUNTIME] = {"providers": ["CPUExecutionProvider"], "unusable": {}}
    assert Probe(simulation.resources).execution_providers(target) == {"CPUExecutionProvider": ""}
    assert pool.functions == [RUNTIME]


def test_an_inspection_is_json() -> None:
    assert Inspection.from_json(json.loads(json.dumps(INSPECTION.to_json()))) == INSPECTION
