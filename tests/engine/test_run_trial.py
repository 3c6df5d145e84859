"""Trials: a point of a chain taken to its metrics, stored so that any process can execute it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulation import Simulation, estimate, failing, faster, unchanged

from autoopt.engine.run.trial import execute_trial, nodes_up_to, objective_values, with_measurements
from autoopt.engine.work.evaluations import Measurements
from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.results import Trial


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


def execute(simulation: Simulation, *, last_node: str | None = None, evaluate: str = "final") -> Trial:
    ctx = simulation.context()
    spec = simulation.plan.spec.model_copy(update={"evaluate": evaluate})
    ctx = replace(ctx, problem=replace(ctx.problem, plan=replace(ctx.problem.plan, spec=spec)))
    trial = Trial(ctx.run, 0, simulation.chain.id, {}, upto=last_node)
    simulation.store.trials.add(trial)
    return execute_trial(ctx, trial)


def test_a_trial_ends_with_the_metrics_of_its_candidate(simulation: Simulation) -> None:
    result = execute(simulation)
    assert result.outcome is Outcome.OK
    assert result.candidate is not None
    assert simulation.model(result.candidate)["passes"] == ["identity_elimination", "remove_unused"]
    assert result.ratios["latency_p50"] == estimate(0.4)
    assert (len(result.pass_runs), len(result.evaluations), result.executed) == (2, 3, 5)


def test_the_end_of_a_trial_is_stored(simulation: Simulation) -> None:
    trial = execute(simulation)
    stored = simulation.store.trials.get(trial.run, 0)
    assert replace(stored, owner=None, finished=None) == replace(trial, owner=None)


def test_the_steps_of_a_trial_are_the_passes_that_changed_something(simulation: Simulation) -> None:
    simulation.pool.passes["identity_elimination"] = unchanged
    trial = execute(simulation)
    assert trial.steps == ("clean",)
    assert simulation.store.trials.get(trial.run, 0).steps == ("clean",)


def test_a_part_of_a_chain_is_run_up_to_a_node(simulation: Simulation) -> None:
    result = execute(simulation, last_node="fold")
    assert result.candidate is not None
    assert simulation.model(result.candidate)["passes"] == ["identity_elimination"]


def test_a_failed_pass_ends_the_trial_without_measurements(simulation: Simulation) -> None:
    simulation.pool.passes["remove_unused"] = failing
    result = execute(simulation)
    assert (result.outcome, result.candidate, result.evaluations) == (Outcome.FAILED, None, ())
    assert result.message == "remove_unused: cannot optimize this"
    assert simulation.pool.measured == []


def test_on_request_every_candidate_on_the_way_is_measured(simulation: Simulation) -> None:
    result = execute(simulation, evaluate="intermediate")
    assert [row.node for row in result.intermediate] == ["fold"]
    assert result.intermediate[0].ratios["latency_p50"] == estimate(0.5)
    assert result.outcome is Outcome.OK


def test_candidates_before_a_failed_pass_are_measured_too(simulation: Simulation) -> None:
    simulation.pool.passes["remove_unused"] = failing
    result = execute(simulation, evaluate="intermediate")
    assert [row.node for row in result.intermediate] == ["fold"]
    assert result.outcome is Outcome.FAILED


def test_a_trial_that_is_too_slow_says_what_was_not_measured(simulation: Simulation) -> None:
    simulation.pool.passes["remove_unused"] = faster(8.0)
    ctx = simulation.context()
    for _ in range(2):  # the source and a first candidate show that the latency is worth measuring first
        ctx.attempt.meter_statistics.add_decision("latency", rejected=True)
    for meter in ("size", "task", "latency"):
        ctx.attempt.meter_statistics.add_time(meter, 1.0)
    trial = Trial(ctx.run, 0, simulation.chain.id, {}, incumbent=1.0, drops_slow=True)
    simulation.store.trials.add(trial)
    result = execute_trial(ctx, trial)
    assert (result.outcome, result.note) == (Outcome.OK, "too slow: accuracy, size not measured")


def test_all_nodes_are_run_without_a_last_one(simulation: Simulation) -> None:
    chain = simulation.chain
    assert nodes_up_to(chain, None) == chain.nodes
    assert [node.id for node in nodes_up_to(chain, "fold")] == ["fold"]
    assert nodes_up_to(chain, "clean") == chain.nodes


def test_measurements_decide_outcome_and_feasibility() -> None:
    first = Trial("run", 0, "c", {}, outcome=Outcome.OK)
    failed = with_measurements(first, Measurements(outcome=Outcome.CRASHED, message="task: died", keys=["k"]))
    assert (failed.outcome, failed.message, failed.evaluations) == (Outcome.CRASHED, "task: died", ("k",))
    good = with_measurements(first, Measurements(outcome=Outcome.UNCHANGED, metrics={"size": Estimate.exact(1.0)}))
    assert (good.outcome, good.feasible) == (Outcome.OK, True)


def test_latencies_are_compared_by_their_ratio() -> None:
    result = Trial(
        run="run",
        number=0,
        chain_id="c",
        point={},
        outcome=Outcome.OK,
        metrics={"latency_p50": Estimate.exact(20.0), "size": Estimate.exact(5.0), "latency_p90": Estimate.exact(30.0)},
        ratios={"latency_p50": Estimate.exact(0.5), "size": Estimate.exact(0.1)},
    )
    values = objective_values(result, {"latency_p50": Estimate.exact(10.0), "size": Estimate.exact(50.0)})
    assert values == {"latency_p50": 5.0, "size": 5.0, "latency_p90": 30.0}
