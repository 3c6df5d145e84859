"""Problems and contexts: frozen, and complete enough to replay the passes."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from simulation import Simulation

from autoopt.engine.work.problem import DataSource, Limits, UserScript
from autoopt.engine.work.restore import ReplayEnvironment
from autoopt.errors import InputError
from autoopt.metrics import Metric
from autoopt.target import Accelerator


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


def test_a_data_source_without_data_is_false() -> None:
    assert not DataSource()
    assert DataSource({"path": "d.npz"}, "digest")


def test_limits_of_time_grow_with_each_gibibyte_of_the_model() -> None:
    assert Limits().grown((1 << 30) - 1) == Limits()
    assert Limits(memory=5).grown(5 << 29) == Limits(1800.0, 180.0, 5)
    assert Limits(measure_seconds=7.0).grown(1 << 30, {"measure_seconds"}) == Limits(1200.0, 7.0)


def test_a_goal_knows_built_in_and_custom_metrics(simulation: Simulation) -> None:
    custom = Metric("cost", "euro", "minimize", "custom", "the cost of an inference")
    goal = replace(simulation.goal, custom={"cost": custom})
    assert goal.metric("cost") is custom
    assert goal.metric("size").unit == "bytes"
    with pytest.raises(InputError, match="unknown metric"):
        goal.metric("costs")


def test_a_replay_environment_survives_json(simulation: Simulation) -> None:
    accelerator = Accelerator(device="gpu", execution_provider="CUDAExecutionProvider", isa=frozenset({"avx2"}))
    data = replace(simulation.problem.data, calibration=DataSource({"path": "c.npz"}, "digest"))
    problem = replace(
        simulation.problem, accelerator=accelerator, data=data, script=UserScript("mine.py", "d"), data_root="/data"
    )
    document = json.loads(json.dumps(problem.replay_environment()))
    environment = ReplayEnvironment.from_json(simulation.pool, simulation.folder, document)
    assert environment.accelerator == accelerator
    assert environment.calibration == {"path": "c.npz"}
    assert (environment.user_script, environment.data_root) == ("mine.py", "/data")


def test_a_context_is_frozen_and_changes_by_copies(simulation: Simulation) -> None:
    ctx = simulation.context(deadline=1.0)
    with pytest.raises(FrozenInstanceError):
        ctx.attempt = ctx.attempt  # type: ignore[misc]
    later = ctx.until(5.0)
    assert (ctx.attempt.deadline, later.attempt.deadline) == (1.0, 5.0)
    assert later.attempt.counts is ctx.attempt.counts
    assert later.problem is ctx.problem
    assert later.store is ctx.store


def test_the_model_file_of_a_candidate_is_in_the_store(simulation: Simulation) -> None:
    path = Path(simulation.context().model_path(simulation.candidate))
    assert path == simulation.store.artifacts.path(simulation.candidate.artifact)
