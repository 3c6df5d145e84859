"""Models are copied into the store and inspected by workers only, once for each content."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulation import INSPECTION, SOURCE, ReadingPool, Simulation, write_model

from autoopt.errors import InputError
from autoopt.outcome import Outcome
from autoopt.problem.admission import admit
from autoopt.problem.reading import ADMIT, INSPECT
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
