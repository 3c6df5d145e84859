"""Rounds of latency measurements, and what the store has of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulation import SOURCE, Simulation, write_model

from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.engine.work.rounds import MEASUREMENT, PAGE, Rounds
from autoopt.model.candidate import Candidate

METRICS = ("latency_p50",)


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


def candidates(simulation: Simulation, *latencies: float) -> list[Candidate]:
    models = [{**SOURCE, "latency": latency} for latency in latencies]
    folders = [write_model(model, simulation.folder / str(model["latency"])).parent for model in models]
    return [Candidate(simulation.store.artifacts.put(folder)) for folder in folders]


def loaded(ctx: RunContext, models: list[Candidate], occasion: str = "") -> Rounds:
    rounds = Rounds(ctx, METRICS, occasion)
    rounds.load(models)
    return rounds


def test_candidates_of_one_round_share_a_measurement(simulation: Simulation) -> None:
    models = candidates(simulation, 5.0, 8.0)
    rounds = loaded(simulation.context(), models)
    assert rounds.measure(models, {"seconds": 1.0})
    first, second = (rounds.good(model.key)[0] for model in models)
    assert first.details[MEASUREMENT] == second.details[MEASUREMENT] == first.key
    assert (first.ratios["latency_p50"].value, second.ratios["latency_p50"].value) == (0.5, 0.8)
    assert len(simulation.pool.measured) == 1


def test_later_rounds_and_runs_find_all_earlier_ones(simulation: Simulation) -> None:
    (model,) = candidates(simulation, 5.0)
    rounds = loaded(simulation.context(), [model])
    for _ in range(2 * PAGE):
        assert rounds.measure([model], {})
    again = loaded(simulation.context(), [model])
    keys = [record.key for record in rounds.records[model.key]]
    assert [record.key for record in again.records[model.key]] == keys
    again.measure([model], {})
    assert len(loaded(simulation.context(), [model]).good(model.key)) == 2 * PAGE + 1


def test_the_first_measurement_is_that_of_the_trial(simulation: Simulation) -> None:
    (model,) = candidates(simulation, 5.0)
    ctx = simulation.context()
    names = tuple(metric.name for metric in simulation.goal.metrics if metric.kind == "latency")
    evaluate(ctx, model, EvaluationOptions(metrics=names, screened=True))
    rounds = Rounds(ctx, names)
    rounds.load([model])
    (record,) = rounds.good(model.key)
    assert MEASUREMENT not in record.details


def test_rounds_of_another_occasion_are_others(simulation: Simulation) -> None:
    (model,) = candidates(simulation, 5.0)
    ctx = simulation.context()
    loaded(ctx, [model]).measure([model], {})
    assert loaded(ctx, [model], "tonight").good(model.key) == []


def test_a_failed_measurement_is_kept_but_does_not_count(simulation: Simulation) -> None:
    folder = write_model(
        {**SOURCE, "dies in meter": "autoopt.measure.worker:latency"}, simulation.folder / "bad"
    ).parent
    model = Candidate(simulation.store.artifacts.put(folder))
    rounds = loaded(simulation.context(), [model])
    assert not rounds.measure([model], {})
    assert len(rounds.records[model.key]) == 1
    assert rounds.good(model.key) == []
