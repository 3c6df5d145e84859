"""Candidates for which the runtime executes the same graph: one is measured, the others share its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from simulation import SOURCE, Model, Simulation, write_model

from autoopt.engine.run.evidence import Evidence
from autoopt.engine.run.executor import InlineExecutor
from autoopt.engine.run.race import latency_metrics
from autoopt.engine.work.evaluations import TWIN, evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions, Rounds
from autoopt.metrics import Objective
from autoopt.model.candidate import Candidate
from autoopt.results import RunResult
from autoopt.search.trial import Proposal
from autoopt.store.finished import finished_trials


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path, source={**SOURCE, "graph": "of the source"})


def candidate(simulation: Simulation, name: str, **changes: object) -> Candidate:
    model = {**simulation.source, "latency": 5.0, "passes": [name], **changes}
    return Candidate(simulation.store.artifacts.put(write_model(model, simulation.folder / name).parent))


def test_one_of_two_equal_graphs_is_measured(simulation: Simulation) -> None:
    ctx = simulation.context()
    first, second = candidate(simulation, "one", graph="a"), candidate(simulation, "two", graph="a", size=5.0)
    one, two = evaluate(ctx, first), evaluate(ctx, second)
    assert simulation.pool.meters == ["size", "task", "latency", "size"]
    assert two.ratios["latency_p50"] == one.ratios["latency_p50"]
    assert two.metrics["accuracy"] == one.metrics["accuracy"]
    assert two.metrics["size"].value == 5.0
    assert two.details["latency"][TWIN] == two.details["task"][TWIN] == first.key
    assert (one.executed, two.executed) == (3, 1)
    assert evaluate(ctx, second).keys == two.keys


def test_the_same_work_shares_the_latency_alone(simulation: Simulation) -> None:
    ctx = simulation.context()
    first = candidate(simulation, "one", graph="a", work="w")
    second = candidate(simulation, "two", graph="b", work="w", accuracy=0.95)
    one, two = (evaluate(ctx, model, EvaluationOptions(screened=True)) for model in (first, second))
    assert simulation.pool.meters == ["size", "task", "latency", "size", "task"]
    assert two.ratios["latency_p50"] == one.ratios["latency_p50"]
    assert two.metrics["accuracy"].value == 0.95
    evidence = Evidence(Rounds(ctx, tuple(latency_metrics(simulation.goal))))
    evidence.load([first, second])
    assert evidence.subject(first.key) == evidence.subject(second.key)


def test_a_run_shares_what_an_earlier_one_measured(simulation: Simulation) -> None:
    evaluate(simulation.context(), candidate(simulation, "one", graph="a"))
    assert evaluate(simulation.context(), candidate(simulation, "two", graph="a")).executed == 1


def test_the_graph_of_the_source_is_not_measured_again(simulation: Simulation) -> None:
    ctx = simulation.context()
    evaluate(ctx, simulation.candidate, EvaluationOptions(judged=False, screened=True))
    measurements = evaluate(ctx, candidate(simulation, "one"))
    assert simulation.pool.meters == ["size", "task", "latency", "size"]
    assert measurements.ratios["latency_p50"].value == 1.0
    assert measurements.details["latency"][TWIN] == simulation.candidate.key


@pytest.mark.parametrize("graphs", [("a", "b"), ("", "")], ids=["different", "unknown"])
def test_other_graphs_are_timed(simulation: Simulation, graphs: tuple[str, str]) -> None:
    ctx = simulation.context()
    for number, graph in enumerate(graphs):
        assert evaluate(ctx, candidate(simulation, f"model {number}", graph=graph)).executed == 3


def test_other_settings_are_timed(simulation: Simulation) -> None:
    ctx = simulation.context()
    evaluate(ctx, candidate(simulation, "one", graph="a"))
    longer = EvaluationOptions(settings={"seconds": 9.0})
    assert evaluate(ctx, candidate(simulation, "two", graph="a"), longer).executed == 3


def test_start_up_is_timed_for_each_model(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, objectives=(Objective("cold_start", "minimize"),))
    ctx = simulation.context()
    for number in range(2):
        evaluate(ctx, candidate(simulation, f"model {number}", graph="a"))
    assert simulation.pool.meters.count("latency") == 2


def test_a_shared_measurement_counts_once(simulation: Simulation) -> None:
    ctx = simulation.context()
    first, second = candidate(simulation, "one", graph="a"), candidate(simulation, "two", graph="a")
    evaluate(ctx, first, EvaluationOptions(screened=True))
    evaluate(ctx, second, EvaluationOptions(screened=True))
    metrics = tuple(latency_metrics(simulation.goal))
    both, alone = (Evidence(Rounds(ctx, metrics)) for _ in range(2))
    both.load([first, second])
    alone.load([first])
    assert both.estimate(second.key, "latency_p50") == alone.estimate(first.key, "latency_p50")
    both.measure([first], {})
    assert both.rounds_of(second.key) == both.rounds_of(first.key) == 1
    assert both.estimate(second.key, "latency_p50") == both.estimate(first.key, "latency_p50")


def to_graph(graph: str, **changes: float | str) -> Any:
    """A pass whose result has this graph."""

    def change(model: Model, params: Mapping[str, Any]) -> Model:
        return {**model, "graph": graph, **changes}

    return change


DAG = {
    "passes": {"fold": "identity_elimination", "clean": "remove_unused", "names": "name_fix"},
    "chains": [["fold"], ["clean"], ["names"]],
}


def run(folder: Path, passes: Mapping[str, Any], **options: Any) -> tuple[Simulation, RunResult, list[Proposal]]:
    """Run a search over three chains of one pass each."""
    simulation = Simulation(folder, dag=DAG, source={**SOURCE, "graph": "of the source"}, **options)
    simulation.pool.passes = dict(passes)
    with simulation.session(search={"trials": 2}) as session, InlineExecutor(1, session.ctx.resources.stop) as executor:
        result = session.search(executor)
    return simulation, result, list(session.study.trials)


PASSES = {
    "identity_elimination": to_graph("a", latency=5.0, size=990.0),
    "remove_unused": to_graph("a", latency=5.0, size=900.0),
    "name_fix": to_graph("of the source", size=999.0),
}


def test_a_trial_with_a_known_graph_says_so_and_does_not_count(tmp_path: Path) -> None:
    simulation, result, proposals = run(tmp_path, PASSES)
    assert len(proposals) == 3  # one more than the limit
    notes = sorted(trial.note for trial in finished_trials(simulation.store, result.run))
    timed = [number for number in range(3) if f"runs the same graph as trial {number}" in notes]
    assert (notes[0], len(timed)) == ("", 1)
    assert "runs the same graph as the source" in notes


def test_trials_of_the_same_work_count_and_race_once(tmp_path: Path) -> None:
    passes = {name: to_graph(name, work="w", latency=5.0) for name in PASSES}
    simulation, result, proposals = run(tmp_path, passes)
    assert len(proposals) == 2
    notes = sorted(trial.note for trial in finished_trials(simulation.store, result.run))
    assert notes[0] == ""
    assert notes[1] in ("takes as long as trial 0", "takes as long as trial 1")
    timed = [payload for function, payload in simulation.pool.measured if function.endswith(":latency")]
    assert len(timed) > 2  # of the source, of a trial, and rounds
    assert all(not payload["rivals"] for payload in timed)


@pytest.mark.parametrize("metric", ["size", "cold_start"])
def test_it_counts_where_the_file_matters(tmp_path: Path, metric: str) -> None:
    objectives = (Objective("latency_p50", "minimize"), Objective(metric, "minimize"))
    _, _, proposals = run(tmp_path, PASSES, objectives=objectives)
    assert len(proposals) == 2


def test_a_graph_that_breaks_a_constraint_is_judged_once(tmp_path: Path) -> None:
    passes = {
        name: to_graph("a", accuracy=0.1, size=size)
        for name, size in (("identity_elimination", 9), ("remove_unused", 8))
    }
    simulation, _, proposals = run(tmp_path, {**PASSES, **passes})
    assert len(proposals) == 3
    assert simulation.pool.meters.count("task") == 2  # the source and one of the two
