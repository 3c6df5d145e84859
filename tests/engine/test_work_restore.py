"""Lost models are made again from their lineage or a recipe, in the environment of their run."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulation import Simulation, failing, faster, read_model, write_model

from autoopt.engine.run.session import search_inline
from autoopt.engine.work.restore import ReplayEnvironment, restorer
from autoopt.errors import SystemFailure
from autoopt.passes.request import PassStep


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


@pytest.fixture
def environment(simulation: Simulation) -> ReplayEnvironment:
    return ReplayEnvironment(simulation.pool, simulation.resources.scratch)


@pytest.fixture
def source(simulation: Simulation) -> Path:
    return write_model(simulation.source, simulation.folder / "again")


def test_steps_are_run_in_order(environment: ReplayEnvironment, source: Path) -> None:
    folder = environment.make(source, [PassStep("identity_elimination"), PassStep("remove_unused")])
    assert read_model(folder / "model.onnx")["passes"] == ["identity_elimination", "remove_unused"]


def test_steps_that_change_nothing_leave_the_source(environment: ReplayEnvironment, source: Path) -> None:
    folder = environment.make(source, [])
    assert read_model(folder / "model.onnx") == read_model(source)


def test_a_step_that_fails_now_is_a_failure_of_the_system(
    simulation: Simulation, environment: ReplayEnvironment, source: Path
) -> None:
    simulation.pool.passes["remove_unused"] = failing
    with pytest.raises(SystemFailure, match="cannot be made again: remove_unused: cannot optimize this"):
        environment.make(source, [PassStep("remove_unused")])


def test_a_lost_artifact_is_made_again_by_its_lineage(simulation: Simulation) -> None:
    with simulation.session() as session:
        result = session.execute(search_inline)
    assert result.best is not None
    restore = restorer(simulation.store, ReplayEnvironment(simulation.pool, simulation.resources.scratch))
    folder = restore(result.best.artifact)
    assert read_model(folder / "model.onnx")["passes"] == ["identity_elimination", "remove_unused"]


def test_an_artifact_whose_source_is_lost_too_needs_the_original_file(simulation: Simulation) -> None:
    with simulation.session() as session:
        result = session.execute(search_inline)
    assert result.best is not None
    store, source = simulation.store, simulation.candidate.artifact
    store.artifacts.restorer = None
    store.artifacts.path(source).unlink()
    restore = restorer(store, ReplayEnvironment(simulation.pool, simulation.resources.scratch))
    with pytest.raises(
        SystemFailure, match=f"{source[:12]}, its source model, is lost too; run autoopt on the original"
    ):
        restore(result.best.artifact)


def test_a_source_model_cannot_be_made_again(simulation: Simulation, environment: ReplayEnvironment) -> None:
    with pytest.raises(SystemFailure, match="is a source model"):
        restorer(simulation.store, environment)(simulation.candidate.artifact)


def test_a_recorded_environment_has_defaults_for_what_it_lacks(simulation: Simulation) -> None:
    environment = ReplayEnvironment.from_json(
        simulation.pool, simulation.folder, {"user_script": "mine.py", "data_root": "/data"}
    )
    assert (environment.user_script, environment.data_root) == ("mine.py", "/data")
    environment = ReplayEnvironment.from_json(simulation.pool, simulation.folder, {})
    assert environment == ReplayEnvironment(simulation.pool, simulation.folder)


def test_a_session_restores_lost_artifacts_as_its_run_made_them(simulation: Simulation) -> None:
    simulation.pool.passes["identity_elimination"] = faster(0.5)
    simulation.session()
    assert simulation.store.artifacts.restorer is not None
