"""Examples are what finished runs measured, from the trial that measured it, on a case like the present one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulation import INSPECTION, Simulation, faster, unchanged, write_model

from autoopt.dag import Facts
from autoopt.engine.run.session import search_inline
from autoopt.metrics import Objective
from autoopt.model.candidate import Candidate
from autoopt.model.inspection import Inspection
from autoopt.outcome import Outcome
from autoopt.problem import earlier_runs
from autoopt.problem.earlier_runs import Machine, examples, taught_plan
from autoopt.problem.problem import Goal, Problem, Sources
from autoopt.spec.search import SearchConfig
from autoopt.spec.targets import HostSpec
from autoopt.store import EvaluationRecord, ModelRecord
from autoopt.target import Target

DAG: dict[str, Any] = {
    "passes": {"fold": "identity_elimination", "clean": "remove_unused", "shared": "common_subexpression_elimination"},
    "chains": [["fold", "clean"], ["clean", "shared"]],
}
HERE = Machine.of({})


def problem_of(simulation: Simulation, inspection: Inspection = INSPECTION, **changes: Any) -> Problem:
    """The problem of the simulation for another model."""
    sources = Sources(Facts(inspection=inspection))
    return replace(simulation.asked(), source=Candidate("another"), sources=sources, **changes)


def on_runtime(version: str) -> dict[str, Any]:
    host = HostSpec(type="python_env", python="/opt/python")
    return {"host": host, "runtimes": {host.elsewhere: {"onnxruntime": version}}}


def with_objective(simulation: Simulation, metric: str, goal: str = "minimize") -> Goal:
    return replace(simulation.goal, objectives=(Objective(metric, goal),))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    """A finished run, in which `clean` changes nothing and `fold` halves the latency."""
    simulation = Simulation(tmp_path_factory.mktemp("simulation"), dag=DAG)
    simulation.pool.passes = {
        "identity_elimination": faster(0.5),
        "remove_unused": unchanged,
        "common_subexpression_elimination": faster(0.9),
    }
    simulation.store.models.add(ModelRecord(simulation.candidate.artifact, "bert", INSPECTION.to_json()))
    finish(simulation)
    return simulation


def finish(simulation: Simulation) -> Mapping[str, object]:
    with simulation.session() as session:
        return session.execute(search_inline).to_json()


def test_an_example_is_the_best_candidate_with_the_passes_that_changed_it(simulation: Simulation) -> None:
    (example,) = examples(simulation.store, problem_of(simulation))
    assert example.passes == {"identity_elimination"}
    assert example.ratio == pytest.approx(0.5, rel=0.05)
    assert (example.metric, example.elsewhere) == ("latency_p50", "")


def test_the_chain_that_was_measured_is_preferred(simulation: Simulation) -> None:
    plan = taught_plan(simulation.store, problem_of(simulation))
    known = plan.learned[0]
    assert known.chain == ("fold", "clean")
    assert known.evidence == "identity_elimination gave 0.50 of the source's latency_p50 on source.onnx (same graph)"


@pytest.mark.parametrize(
    "changes",
    [
        {"target": Target(device="gpu", execution_provider="CUDAExecutionProvider")},
        {"inspection": replace(INSPECTION, op_counts={"Conv": 3})},
    ],
)
def test_another_target_or_model_teaches_nothing(simulation: Simulation, changes: dict[str, Any]) -> None:
    assert examples(simulation.store, problem_of(simulation, **changes)) == []


@pytest.mark.parametrize("metric", ["size", "accuracy"])
def test_another_objective_teaches_nothing(simulation: Simulation, metric: str) -> None:
    assert examples(simulation.store, problem_of(simulation, goal=with_objective(simulation, metric))) == []


def test_throughput_learns_from_latency_with_its_own_ratio(simulation: Simulation) -> None:
    goal = with_objective(simulation, "throughput", "maximize")
    (example,) = examples(simulation.store, problem_of(simulation, goal=goal))
    assert example.metric == "throughput"
    assert example.ratio == pytest.approx(0.5, rel=0.05)


def test_another_machine_is_named(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_runs, "cpu", lambda: {"model": "Other CPU"})
    other = problem_of(simulation, target=Target(threads=0), **on_runtime("0.1"))
    (example,) = examples(simulation.store, other)
    assert HERE.cpu in example.elsewhere
    assert f"onnxruntime {HERE.runtime}" in example.elsewhere
    assert "1 thread" in example.elsewhere


def test_the_same_search_is_that_of_the_same_chains_and_settings(simulation: Simulation, tmp_path: Path) -> None:
    problem = problem_of(simulation)
    (same,) = examples(simulation.store, problem)
    assert same.same_search
    assert examples(simulation.store, problem_of(simulation, replace(INSPECTION, parameters=7))) == []
    for change in (
        {"search": SearchConfig(trials=99)},
        {"source": simulation.candidate},
        on_runtime("0.1"),
        {"goal": replace(problem.goal, constraints=())},
        {"plan": Simulation(tmp_path / "narrow").plan},
    ):
        (example,) = examples(simulation.store, replace(problem, **change))
        assert not example.same_search


def test_a_run_whose_best_is_the_source_teaches_nothing(simulation: Simulation, tmp_path: Path) -> None:
    other = Simulation(tmp_path / "other", dag=DAG, source={"latency": 3.0, "size": 9.0, "accuracy": 0.9, "passes": []})
    other.pool.passes = dict.fromkeys(simulation.pool.passes, unchanged)
    other.store.models.add(ModelRecord(other.candidate.artifact, "flat", INSPECTION.to_json()))
    finish(other)
    assert examples(other.store, problem_of(other)) == []


def test_the_newest_run_of_each_model_counts(simulation: Simulation, tmp_path: Path) -> None:
    artifact = simulation.store.artifacts.put(write_model({"latency": 1.0, "passes": ["x"]}, tmp_path / "m").parent)
    simulation.store.models.add(ModelRecord(artifact, "unused", Inspection.from_json(INSPECTION.to_json()).to_json()))
    assert len(examples(simulation.store, problem_of(simulation))) == 1


def test_a_plan_does_without_earlier_runs_that_cannot_be_read(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, dag=DAG)
    simulation.pool.passes = dict.fromkeys(DAG["passes"].values(), faster(0.5))
    simulation.store.models.add(ModelRecord(simulation.candidate.artifact, "bert", {"inputs": "nonsense"}))
    finish(simulation)
    assert taught_plan(simulation.store, problem_of(simulation)).learned == ()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("", "")),
        ({"cpu": {"model": "Old CPU"}, "libraries": {"onnxruntime": "1.1"}}, ("Old CPU", "1.1")),
        ({"cpu": {"model": "Old CPU"}, "onnxruntime": "1.2", "libraries": {"onnxruntime": "1.1"}}, ("Old CPU", "1.2")),
        ({"libraries": {"onnxruntime": "1.1"}, "measured by": {"onnxruntime": "1.3"}}, ("", "1.3")),
        ({"cpu": None, "libraries": None, "measured by": None}, ("", "")),
    ],
    ids=["nothing recorded", "libraries", "host", "another interpreter", "nulls"],
)
def test_the_machine_of_an_evaluation_is_as_far_as_it_was_recorded(
    environment: Mapping[str, Any], expected: tuple[str, str]
) -> None:
    evaluation = EvaluationRecord("e", Candidate("a" * 64), "latency", Outcome.OK, environment=environment)
    assert Machine.that_measured(evaluation) == Machine(*expected)
