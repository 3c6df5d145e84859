"""Trials as models of the result, and the summary of their measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulation import Simulation, failing, faster

from autoopt import json_codec
from autoopt.engine.run.select import (
    EQUALLY_FAST,
    FREE_CORES,
    ONE_THREAD,
    distinct_feasible,
    explain_no_result,
    explain_repeats,
    summarize,
)
from autoopt.engine.run.session import Session, search_inline
from autoopt.measure.two_ratios import DETAIL, TwoRatios
from autoopt.metrics import Constraint, Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.results import MeasurementSummary, ThroughputResult, Trial
from autoopt.store import EvaluationRecord

DAG = {"passes": {"fold": "identity_elimination", "clean": "remove_unused"}, "chains": [["fold", "clean"], ["clean"]]}


def searched(simulation: Simulation) -> Session:
    session = simulation.session()
    with session:
        session.execute(search_inline)
    return session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return searched(Simulation(tmp_path, dag=DAG))


def changed(trial: Trial, **values: object) -> Trial:
    return replace(trial, **values)  # type: ignore[arg-type]


def test_a_candidate_is_selected_once_with_the_shortest_chain(session: Session) -> None:
    long, short = sorted(session.completed_trials(), key=lambda trial: trial.pass_count, reverse=True)
    same = changed(long, candidate=short.candidate)
    assert distinct_feasible([same, short], session.ctx.problem.source) == [short]
    assert len(distinct_feasible([long, short], session.ctx.problem.source)) == 2


def test_infeasible_and_partial_trials_and_the_source_are_not_selected(session: Session) -> None:
    trial, source = session.completed_trials()[0], session.ctx.problem.source
    for other in (
        changed(trial, violation=0.1),
        changed(trial, outcome=Outcome.FAILED),
        changed(trial, candidate=source),
        changed(trial, candidate=None),
        changed(trial, upto="fold"),
    ):
        assert distinct_feasible([other], source) == []


def test_the_trial_closest_to_the_constraints_is_named(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, dag=DAG, constraints=(Constraint("size", max=10.0),))
    (sentence,) = explain_no_result(searched(simulation).completed_trials())
    assert sentence.startswith("trial ")
    assert "came closest to the constraints" in sentence
    assert "size" in sentence


def test_a_run_that_keeps_the_source_names_the_trial_closest_to_the_constraints(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, dag=DAG, constraints=(Constraint("accuracy", max_drop=0.01),))
    simulation.pool.passes = {
        name: faster(0.5, accuracy=0.8 + 0.01 * number) for number, name in enumerate(simulation.pool.passes)
    }
    with simulation.session() as session:
        result = session.execute(search_inline)
    assert result.best.is_source
    (note,) = [note for note in result.notes if "came closest" in note]
    assert "accuracy" in note


def test_the_first_failure_is_named_if_no_trial_succeeded(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, dag=DAG)
    simulation.pool.passes = dict.fromkeys(simulation.pool.passes, failing)
    (sentence,) = explain_no_result(searched(simulation).completed_trials())
    assert sentence.startswith("no trial succeeded; trial 0: failed, ")
    assert "cannot optimize this" in sentence


def test_trials_that_repeat_a_candidate_are_told(session: Session) -> None:
    trials = session.completed_trials()
    distinct = {trial.candidate.key for trial in trials if trial.candidate is not None}
    assert explain_repeats([]) == []
    (note,) = explain_repeats([*trials, *trials])
    assert note == f"{2 * len(trials) - len(distinct)} of {2 * len(trials)} trials repeated another one's model"


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": 0.9 * value, "high": 1.1 * value}


def details(stopped: str = "narrow", **values: Any) -> dict[str, Any]:
    return {"stopped": stopped, "pairs": 10, "effective_repeats": 7.5, "threads": 2, "batch_size": 1, **values}


def latency(details: Mapping[str, Any], outcome: Outcome = Outcome.OK) -> EvaluationRecord:
    return EvaluationRecord("key", Candidate("artifact"), "latency", outcome, details=details)


def test_all_measurements_of_a_candidate_count() -> None:
    records = [latency(details()), latency(details("time")), latency(details(disturbed=True))]
    summary, caveats = summarize(records)
    assert (summary.rounds, summary.disturbed_rounds, summary.counted_rounds) == (3, 1, 3)
    assert summary.stopped == {"narrow": 2, "time": 1}
    assert (summary.pairs, summary.effective_repeats, summary.threads) == (30, 22.5, 2)
    assert caveats == ()


def test_the_range_of_the_rounds_is_part_of_the_summary() -> None:
    slow = replace(latency(details()), ratios={"latency_p50": Estimate(0.5, 0.4, 0.6)})
    fast = replace(latency(details()), ratios={"latency_p50": Estimate(0.4, 0.3, 0.5)})
    summary, _ = summarize([slow, fast])
    assert summary.round_ratios == {"latency_p50": (0.4, 0.5)}
    assert json_codec.from_json(MeasurementSummary, summary.to_json()) == summary


def test_a_failed_measurement_does_not_count() -> None:
    summary, _ = summarize([latency(details()), latency({}, Outcome.CRASHED)])
    assert summary.rounds == 1


def test_disturbed_rounds_are_counted_and_are_no_caveat_because_intervals_include_them() -> None:
    disturbed = latency(details(busy=True))
    summary, caveats = summarize([latency(details()), disturbed, disturbed])
    assert summary.disturbed_rounds == 2
    assert caveats == ()


def test_a_candidate_with_the_same_executed_graph_has_a_caveat() -> None:
    assert summarize([latency(details(same_graph=True))])[1] == (EQUALLY_FAST,)


@pytest.mark.parametrize(
    ("on_one_thread", "free", "caveats"), [(0.6, True, (FREE_CORES,)), (0.795, True, ()), (0.6, False, (ONE_THREAD,))]
)
def test_the_range_from_free_cores_to_a_busy_machine_is_told_where_both_differ(
    on_one_thread: float, free: bool, caveats: tuple[str, ...]
) -> None:
    by_clock = Estimate(0.8, 0.79, 0.81)
    both = TwoRatios(by_clock, Estimate(on_one_thread, 0.59, 0.81), 0.0, has_free_cores=free)
    assert summarize([latency(details(**{DETAIL: json_codec.to_json(both)}))])[1] == caveats


def test_without_measurements_the_summary_is_empty() -> None:
    assert summarize([]) == (MeasurementSummary(), ())


def test_the_machine_and_the_pace_are_those_of_the_rounds() -> None:
    machine = {"affinity": [1], "cores": 4}
    summary, _ = summarize([latency(details(machine=machine, pace=pace)) for pace in (1.0, 1.5, None)])
    assert (summary.affinity, summary.cores, summary.pace) == ((1,), 4, 1.5)


def test_the_fidelity_of_each_output_is_part_of_the_summary() -> None:
    fidelity = {"items": 10, "outputs": {"y": {"cosine": estimate(1.0)}}}
    record = EvaluationRecord("key", Candidate("artifact"), "fidelity", Outcome.OK, details=fidelity)
    summary, _ = summarize([record])
    assert summary.items == 10
    assert summary.outputs["y"]["cosine"] == Estimate(1.0, 0.9, 1.1)


def test_throughput_and_profiles_are_combined_over_the_rounds() -> None:
    def round_of(value: float) -> EvaluationRecord:
        row = {"batch_size": 8, "concurrency": 2, "candidate": estimate(value), "ratio": estimate(value / 50)}
        one = details(metrics={"latency_p50": estimate(value)}, ratios={"latency_p50": estimate(2.0)}, throughput=[row])
        refused = {"batch_size": 3, "concurrency": 1, "refused": "no batches"}
        return latency({"profiles": {"short": one, "long": {**one, "throughput": [refused]}}})

    summary, _ = summarize([round_of(value) for value in (100.0, 110.0, 121.0)])
    assert summary.pairs == 60
    assert summary.profiles["short"].metrics["latency_p50"].value == pytest.approx(110)
    short, long = summary.throughput
    assert (short.profile, short.batch_size, short.concurrency, short.source) == ("short", 8, 2, None)
    assert short.candidate.value == pytest.approx(110)
    assert short.ratio.low < 2.2 < short.ratio.high
    assert long == ThroughputResult(3, 1, "long", refused="no batches")
