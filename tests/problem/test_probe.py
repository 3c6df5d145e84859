"""Data, scripts and runtimes are read by workers; data in files once for each content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulation import INSPECTION, SOURCE, ReadingPool, Simulation, write_model, written_data

from autoopt.data.description import DataDescription
from autoopt.data.digest import digest
from autoopt.errors import InputError
from autoopt.model.inspection import Inspection
from autoopt.outcome import Outcome
from autoopt.problem import reading
from autoopt.problem.hosts import RUNTIME
from autoopt.problem.load import spec_of
from autoopt.problem.probe import Probe, data_source
from autoopt.problem.problem import DataSource, Problem
from autoopt.problem.reading import DESCRIBE_DATA
from autoopt.problem.resolve import resolve as resolve_request
from autoopt.problem.run_request import RunRequest
from autoopt.spec.targets import TargetSpec
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


def test_the_cpus_provider_is_known_without_asking(simulation: Simulation, pool: ReadingPool) -> None:
    assert Probe(simulation.resources).providers(TargetSpec()) == ({"CPUExecutionProvider": ""}, "")
    assert pool.functions == []


def test_other_providers_are_asked_of_the_runtime(simulation: Simulation, pool: ReadingPool) -> None:
    target = TargetSpec(execution_provider="CUDAExecutionProvider")
    pool.answers[RUNTIME] = {"providers": ["CPUExecutionProvider"], "unusable": {}, "plugins": {}}
    assert Probe(simulation.resources).providers(target) == ({"CPUExecutionProvider": ""}, "")
    assert pool.functions == [RUNTIME]


def test_an_inspection_is_json() -> None:
    assert Inspection.from_json(json.loads(json.dumps(INSPECTION.to_json()))) == INSPECTION


STATE = {"state_out": "state"}
DAG: dict[str, Any] = {"name": "d", "passes": {"clean": "remove_unused"}, "chains": [["clean"]]}


@pytest.fixture(autouse=True)
def described(pool: ReadingPool) -> None:
    pool.answers[reading.DESCRIBE_DATA] = {"columns": {}, "state": STATE, "reset_every": 5}


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_model({**SOURCE, "passes": ["mine"]}, tmp_path / "mine"))


def resolve(simulation: Simulation, **options: Any) -> Problem:
    paths = {}
    for name in ("evaluation", "calibration"):
        paths[name] = str(simulation.folder / f"{name}.npz")
        np.savez(paths[name], x=np.full((2, 3), len(name), np.float32))
    for name, value in options.items():
        options[name] = paths.get(value, value) if isinstance(value, str) else value
    request = RunRequest(home=simulation.folder / "home", **options)
    return resolve_request(request, spec_of(request), simulation.resources)


def test_a_bare_model_is_measured_with_its_own_state(simulation: Simulation, model: str) -> None:
    problem = resolve(simulation, dag=model, data="evaluation")
    sets = problem.data
    assert sets.evaluation.config is not None
    assert sets.evaluation.config["state"] == STATE
    assert sets.evaluation.config["reset_every"] == 5
    assert sets.calibration == sets.evaluation
    assert any("own recurrent state (state_out -> state)" in note.text for note in problem.notes)


def test_other_calibration_data_stay_as_they_are(simulation: Simulation, model: str) -> None:
    sets = resolve(simulation, dag=model, data="evaluation", calibration="calibration").data
    assert sets.calibration.config is not None
    assert "state" not in sets.calibration.config


@pytest.mark.parametrize("options", [{}, {"measurement": {"state": {"state_out": "state"}, "reset_every": 2}}])
def test_a_dag_keeps_what_it_says(simulation: Simulation, model: str, options: dict[str, Any]) -> None:
    problem = resolve(simulation, dag=DAG, model=model, data="evaluation", **options)
    assert problem.data.evaluation.config is not None
    assert "state" not in problem.data.evaluation.config
    advice = [note for note in map(str, problem.notes) if f"state: {json.dumps(STATE)}" in note]
    assert bool(advice) is not bool(options)


@pytest.mark.parametrize(
    ("starts", "advised"),
    [
        ([0, 7], 'state: {"state_out": "state"}, starts: [0, 7] in the data'),
        (list(range(0, 40, 4)), "'autoopt init MODEL --data FILE' writes the fields"),
    ],
)
def test_first_states_of_the_data_are_kept_where_sequences_start(
    simulation: Simulation, pool: ReadingPool, model: str, starts: list[int], advised: str
) -> None:
    pool.answers[reading.DESCRIBE_DATA] = {"columns": {}, "state": STATE, "starts": starts}
    problem = resolve(simulation, dag=model, data="evaluation")
    assert pool.functions.count(reading.DESCRIBE_DATA) == 1
    config = problem.data.evaluation.config
    assert config is not None
    assert config["starts"] == starts
    assert any(f"sequences that start with the state in the data: {len(starts)}" in note.text for note in problem.notes)
    advice = resolve(simulation, dag=DAG, model=model, data="evaluation").notes
    assert any(advised in note.text for note in advice)


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
