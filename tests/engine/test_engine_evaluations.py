"""Evaluations: cheap meters first, looked up before they are measured, up to a broken constraint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulation import Simulation, estimate, write_model, written_data

from autoopt.engine.work.context import RetryPolicy
from autoopt.engine.work.evaluations import evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.memory import usable_memory
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.problem.problem import DataSets

LATENCY = ("latency_p50", "latency_p90", "latency_p99", "latency_mean", "throughput")


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


def candidate(simulation: Simulation, name: str = "candidate", **changes: object) -> Candidate:
    model = {**simulation.source, "latency": 5.0, "passes": [name], **changes}
    return Candidate(simulation.store.artifacts.put(write_model(model, simulation.folder / name).parent))


def test_all_metrics_of_the_run_are_measured_cheap_ones_first(simulation: Simulation) -> None:
    measurements = evaluate(simulation.context(), candidate(simulation))
    assert simulation.pool.meters == ["size", "task", "latency"]
    assert set(measurements.metrics) == {"size", "accuracy", *LATENCY}
    assert measurements.ratios["latency_p50"] == estimate(0.5)
    assert measurements.source["latency_p50"].value == 10.0
    assert measurements.executed == 3
    assert (measurements.outcome, measurements.violation <= 0) == (Outcome.OK, True)


def test_a_second_evaluation_is_looked_up(simulation: Simulation) -> None:
    model, ctx = candidate(simulation), simulation.context()
    first = evaluate(ctx, model)
    second = evaluate(ctx, model)
    assert (second.metrics, second.keys, second.executed) == (first.metrics, first.keys, 0)
    assert len(simulation.pool.measured) == 3
    assert ctx.attempt.counts.of("evaluations").reused == 3


def test_a_broken_constraint_spares_the_dearer_meters(simulation: Simulation) -> None:
    measurements = evaluate(simulation.context(), candidate(simulation, accuracy=0.5))
    assert simulation.pool.meters == ["size", "task"]
    assert measurements.violation == pytest.approx(0.39)
    assert "accuracy" in measurements.worst
    assert measurements.reasons == (measurements.worst,)


@pytest.mark.parametrize(("spread", "meters"), [(0.0, ["size", "task"]), (0.05, ["size", "task", "latency"])])
def test_a_search_measures_what_breaks_a_constraint_perhaps_by_chance(
    simulation: Simulation, spread: float, meters: list[str]
) -> None:
    """Its time says what a more faithful neighbour may gain."""
    model = candidate(simulation, accuracy=0.87, spread=spread)
    measurements = evaluate(simulation.context(), model, EvaluationOptions(screened=True))
    assert simulation.pool.meters == meters
    assert measurements.violation == pytest.approx(0.02)


def test_without_data_another_generator_of_inputs_is_another_evaluation(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed on earlier inputs may run on these."""
    ctx, model = simulation.context(), candidate(simulation)
    ctx = replace(ctx, problem=replace(ctx.problem, data=DataSets()))
    evaluate(ctx, model)
    monkeypatch.setattr("autoopt.engine.work.meter_runs.GENERATED", "generated, another version")
    again = evaluate(ctx, model)
    assert simulation.pool.meters == ["size", "task", "latency", "task", "latency"]
    assert again.executed == 2


def test_without_judging_everything_is_measured(simulation: Simulation) -> None:
    measurements = evaluate(simulation.context(), candidate(simulation, accuracy=0.5), EvaluationOptions(judged=False))
    assert simulation.pool.meters == ["size", "task", "latency"]
    assert measurements.verdicts == []


def test_only_named_metrics_are_measured(simulation: Simulation) -> None:
    measurements = evaluate(simulation.context(), candidate(simulation), EvaluationOptions(metrics=("latency_p50",)))
    assert set(measurements.metrics) == {"latency_p50"}


@pytest.mark.parametrize(
    "options", [EvaluationOptions(occasion="another night"), EvaluationOptions(settings={"seconds": 9.0})]
)
def test_another_occasion_or_setting_is_another_evaluation(simulation: Simulation, options: EvaluationOptions) -> None:
    model = candidate(simulation)
    evaluate(simulation.context(), model)
    assert evaluate(simulation.context(), model, options).executed == 3


def test_an_incumbent_is_a_hint_and_no_part_of_the_key(simulation: Simulation) -> None:
    model = candidate(simulation)
    evaluate(simulation.context(), model, EvaluationOptions(incumbent=0.4))
    _, payload = simulation.pool.measured[-1]
    assert payload["settings"]["incumbent_ratio"] == 0.4
    assert evaluate(simulation.context(), model, EvaluationOptions(incumbent=0.3)).executed == 0


def test_the_sources_latency_tells_later_measurements_of_slow_spells(simulation: Simulation) -> None:
    ctx = simulation.context()
    evaluate(ctx, candidate(simulation))
    evaluate(ctx, candidate(simulation, "other"))
    payloads = [payload for function, payload in simulation.pool.measured if function.endswith(":latency")]
    assert [payload["settings"].get("source_ms") for payload in payloads] == [None, 10.0]


@pytest.mark.parametrize(
    ("measurement", "reuses_source"),
    [({}, True), ({"rounds": 0}, False), ({"rounds": 0, "replicas": 2}, True)],
    ids=str,
)
def test_only_where_many_sessions_decide_the_source_gets_new_ones(
    tmp_path: Path, measurement: dict[str, object], reuses_source: bool
) -> None:
    simulation = Simulation(tmp_path, measurement=measurement)
    evaluate(simulation.context(), candidate(simulation), EvaluationOptions(screened=True))
    _, payload = simulation.pool.measured[-1]
    assert payload["reuses_source"] is reuses_source


def test_latency_data_is_for_latencies_alone(simulation: Simulation, tmp_path: Path) -> None:
    ctx = simulation.context()
    (tmp_path / "latency").mkdir()
    data = replace(ctx.problem.data, latency=written_data(tmp_path / "latency"))
    evaluate(replace(ctx, problem=replace(ctx.problem, data=data)), candidate(simulation))
    paths = {}
    for function, payload in simulation.pool.measured:
        paths[function.partition(":")[2]] = (payload.get("data") or {}).get("path")
    assert paths == {"size": None, "task": data.evaluation.place, "latency": data.latency.place}


def test_a_failed_meter_ends_the_evaluation_with_its_name(simulation: Simulation) -> None:
    model = candidate(simulation, **{"dies in meter": "autoopt.measure.worker:task"})
    measurements = evaluate(simulation.context(), model)
    assert measurements.outcome is Outcome.CRASHED
    assert measurements.message == "task: the worker died: SIGSEGV"
    assert set(measurements.metrics) == {"size"}


def test_a_stored_failure_is_measured_again_on_a_retry(simulation: Simulation) -> None:
    model = candidate(simulation, **{"dies in meter": "autoopt.measure.worker:size"})
    evaluate(simulation.context(), model)
    assert evaluate(simulation.context(), model).executed == 0
    assert evaluate(simulation.context(retry=RetryPolicy(earlier_runs=True)), model).executed == 1


def test_what_ran_out_of_memory_is_measured_again_with_more(simulation: Simulation) -> None:
    model = candidate(simulation, **{"fills memory in meter": "autoopt.measure.worker:size"})
    memory = usable_memory(None)
    first = evaluate(simulation.context(retry=RetryPolicy(memory=memory)), model)
    assert first.outcome is Outcome.OUT_OF_MEMORY
    assert evaluate(simulation.context(retry=RetryPolicy(memory=memory)), model).executed == 0
    assert evaluate(simulation.context(retry=RetryPolicy(memory=memory + 1)), model).executed == 1


def test_records_of_disturbed_measurements_say_so(simulation: Simulation) -> None:
    simulation.pool.disturbed = True
    assert evaluate(simulation.context(), candidate(simulation)).disturbed


def test_what_is_far_slower_than_the_source_is_not_measured_completely(simulation: Simulation) -> None:
    ctx, options = simulation.context(), EvaluationOptions(incumbent=1.0, drops_slow=True)
    first = evaluate(ctx, candidate(simulation, "first", latency=20.0), options)
    assert (first.too_slow, set(first.metrics)) == (True, {"size", "accuracy", *LATENCY})
    # Now the latency has rejected more candidates for its time than the other meters.
    slow = candidate(simulation, "second", latency=20.0)
    second = evaluate(ctx, slow, options)
    assert (second.too_slow, set(second.metrics)) == (True, set(LATENCY))
    fast = evaluate(ctx, candidate(simulation, "fast"), options)
    assert (fast.too_slow, set(fast.metrics)) == (False, {"size", "accuracy", *LATENCY})
    assert [meter for meter in simulation.pool.meters if meter == "task"] == ["task"] * 2
    # Another run, which knows nothing of the meters yet, looks at what is stored first.
    again = evaluate(simulation.context(), slow, options)
    assert (again.too_slow, again.executed) == (True, 0)


def test_unless_the_latency_decides_slow_candidates_are_measured_completely(simulation: Simulation) -> None:
    ctx, options = simulation.context(), EvaluationOptions(incumbent=1.0)
    for name in ("first", "second"):
        measurements = evaluate(ctx, candidate(simulation, name, latency=20.0), options)
        assert (measurements.too_slow, set(measurements.metrics)) == (False, {"size", "accuracy", *LATENCY})
