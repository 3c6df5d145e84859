"""Everything measured of a run's candidates, pooled."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from simulation import SOURCE, Simulation, write_model

from autoopt import json_codec
from autoopt.engine.run.evidence import Evidence, judge_again, pooled_value, pooled_values
from autoopt.engine.work.evaluations import Measurements
from autoopt.engine.work.meter_runs import Rounds
from autoopt.measure.two_ratios import CONTENTION, DETAIL, TwoRatios, error_of
from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.model.candidate import Candidate
from autoopt.tuning import TIMING

LATENCY = Objective("latency_p50", "minimize")
THROUGHPUT = Objective("throughput", "maximize")


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path, constraints=(Constraint("latency_p50", max_ratio=0.6),))


def measured(simulation: Simulation, latency: float, rounds: int) -> tuple[Evidence, str]:
    """Evidence on one candidate of this latency; the source takes 10 ms."""
    file = simulation.folder / str(latency) / "model.onnx"
    if not file.exists():
        write_model({**SOURCE, "latency": latency}, file.parent)
    candidate = Candidate(simulation.store.artifacts.put(file.parent))
    evidence = Evidence(Rounds(simulation.context(), ("latency_p50", "throughput")))
    evidence.load([candidate])
    for _ in range(rounds):
        assert evidence.measure([candidate], {})
    return evidence, candidate.key


def test_more_rounds_make_a_ratio_more_certain(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 5.0, rounds=1)
    once = evidence.estimate(key, "latency_p50")
    again, _ = measured(simulation, 5.0, rounds=4)
    often = again.estimate(key, "latency_p50")
    assert once.value == pytest.approx(0.5)
    assert often.value == pytest.approx(0.5)
    assert often.high - often.low < 0.5 * (once.high - once.low)
    assert again.rounds_of(key) == 5  # the store had the first one


def test_a_ratio_of_microseconds_is_less_certain_than_one_of_milliseconds(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 9.0, rounds=3)
    ratio = evidence.estimate(key, "latency_p50")
    short = Evidence(evidence.rounds, {"latency_p50": Estimate.exact(0.01)})
    short_ratio = short.estimate(key, "latency_p50")
    assert short_ratio.value == ratio.value
    assert short_ratio.high / short_ratio.low > 1.005 * ratio.high / ratio.low
    long = Evidence(evidence.rounds, {"latency_p50": Estimate.exact(10.0)})
    assert long.estimate(key, "latency_p50").high == pytest.approx(ratio.high, rel=1e-6)


def test_the_heap_makes_no_start_up_time_less_certain(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 9.0, rounds=3)
    start_up = Estimate(0.9, 0.85, 0.95)
    records = [replace(record, ratios={"cold_start": start_up}) for record in evidence.records(key)]
    evidence.rounds.records[key] = records
    short = Evidence(evidence.rounds, {"latency_p50": Estimate.exact(0.001)})
    long = Evidence(evidence.rounds, {"latency_p50": Estimate.exact(10.0)})
    assert short.estimate(key, "cold_start") == long.estimate(key, "cold_start")


def test_a_cautious_ratio_is_the_worse_one(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 5.0, rounds=2)
    assert 0.5 < evidence.cautious_ratio(key, LATENCY) < 0.52
    assert 1.92 < evidence.cautious_ratio(key, THROUGHPUT) < 2.0


def test_the_probability_of_a_gain(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 5.0, rounds=3)
    assert evidence.gains(key, LATENCY)
    assert evidence.gains(key, THROUGHPUT)
    slower, slower_key = measured(simulation, 12.0, rounds=3)
    assert not slower.gains(slower_key, LATENCY)


def test_a_gain_that_the_range_does_not_show_is_not_certain(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 9.85, rounds=6)
    long = Evidence(evidence.rounds, {"latency_p50": Estimate.exact(10.0)})
    assert long.estimate(key, "latency_p50").high < 1
    assert long.gains(key, LATENCY)
    short = Evidence(evidence.rounds, {"latency_p50": Estimate.exact(0.01)})
    assert short.estimate(key, "latency_p50").high > 1
    assert not short.gains(key, LATENCY)


def test_pooled_latencies_replace_those_of_the_trial_and_are_judged(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 8.0, rounds=2)
    lucky = Measurements(
        metrics={"latency_p50": Estimate.exact(5.0), "size": Estimate.exact(900.0)},
        ratios={"latency_p50": Estimate(0.5, 0.49, 0.51)},
        keys=["trial"],
    )
    again = judge_again(simulation.goal, lucky, evidence.measurements(key))
    assert again.metrics["latency_p50"].value == pytest.approx(8.0)
    assert again.metrics["size"] == Estimate.exact(900.0)
    assert again.violation == pytest.approx(0.2, abs=0.01)
    assert again.keys[0] == "trial"
    assert len(again.keys) == 3


@pytest.mark.parametrize(("resolution", "reasons"), [(0.0, 1), (0.5, 0)])
def test_a_limit_that_the_data_cannot_confirm_is_no_reason_after_a_race_either(
    tmp_path: Path, resolution: float, reasons: int
) -> None:
    simulation, value = (
        Simulation(tmp_path, constraints=(Constraint("accuracy", max_drop=0.1),)),
        Estimate(0.9, 0.8, 1.0),
    )
    first = Measurements({"accuracy": value}, source={"accuracy": value}, drops={"accuracy": Estimate(0.0, -0.2, 0.2)})
    again = judge_again(simulation.goal, replace(first, resolutions={"accuracy": resolution}), Measurements())
    assert (len(again.reasons), len(again.unsure)) == (reasons, reasons)


def test_equal_values_stay_as_they_are_and_others_are_pooled() -> None:
    exact = Estimate.exact(3.0)
    assert pooled_value([exact, exact]) == exact
    assert pooled_value([Estimate.exact(0.0), Estimate.exact(1.0)]) == Estimate.exact(0.0)
    pooled = pooled_value([Estimate(1.0, 0.9, 1.1), Estimate(1.2, 1.1, 1.3)])
    assert pooled.low < 1.0 < pooled.value < 1.2 < pooled.high
    assert pooled_values([{"a": exact, "b": exact}, {"a": exact}]) == {"a": exact}
    assert pooled_values([]) == {}


def test_a_ratio_on_one_thread_decides_where_the_clock_could_not(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 5.0, rounds=3)
    by_clock, on_one_thread = Estimate(0.8, 0.3, 2.1), Estimate(0.5, 0.49, 0.51)
    both = {DETAIL: json_codec.to_json(TwoRatios(by_clock, on_one_thread))}
    records = [replace(record, ratios={"latency_p50": by_clock}) for record in evidence.records(key)]
    evidence.rounds.records[key] = records
    evidence = Evidence(evidence.rounds)
    assert not evidence.gains(key, LATENCY)
    again = Evidence(evidence.rounds)
    again.rounds.records[key] = [replace(record, details={**record.details, **both}) for record in records]
    assert again.gains(key, LATENCY)
    assert not evidence.is_narrow(key, "latency_p50")
    assert again.is_narrow(key, "latency_p50")  # as far as it can be
    quiet = {DETAIL: json_codec.to_json(TwoRatios(by_clock, on_one_thread, disturbance=0.0))}
    records[-1] = replace(records[-1], details={**records[-1].details, **quiet})
    quiet_again = Evidence(again.rounds)
    quiet_again.rounds.records[key] = [*again.records(key)[:-1], records[-1]]
    assert not quiet_again.is_narrow(key, "latency_p50")  # the clock tells more with each round


@pytest.mark.parametrize("entry", ["time_to_first_token", None])
def test_the_first_token_of_a_set_has_a_pair_of_ratios_of_its_own(simulation: Simulation, entry: str | None) -> None:
    """The prompt of one model is its latency, whose details are the measurement's."""
    evidence, key = measured(simulation, 5.0, rounds=3)
    objective, by_clock = Objective("time_to_first_token", "minimize"), Estimate(0.8, 0.3, 2.1)
    both = {DETAIL: json_codec.to_json(TwoRatios(by_clock, Estimate(0.5, 0.49, 0.51)))}
    for index, record in enumerate(evidence.records(key)):
        details = {**record.details, **(both if entry is None else {entry: both})}
        evidence.rounds.records[key][index] = replace(record, ratios={objective.metric: by_clock}, details=details)
    evidence = Evidence(evidence.rounds)
    assert evidence.gains(key, objective)
    assert evidence.lasting_error(key, objective.metric) > 0


def test_rounds_on_several_threads_beside_other_programs_do_not_average_their_error_away(
    simulation: Simulation,
) -> None:
    evidence, key = measured(simulation, 5.0, rounds=8)
    by_clock, on_one_thread = Estimate(0.66, 0.6, 0.72), Estimate(0.585, 0.57, 0.6)
    both = {DETAIL: json_codec.to_json(TwoRatios(by_clock, on_one_thread))}
    records = [
        replace(record, ratios={"latency_p50": by_clock}, details={**record.details, **both})
        for record in evidence.records(key)
    ]
    busy = Evidence(evidence.rounds)
    busy.rounds.records[key] = records
    estimate = busy.estimate(key, "latency_p50")
    assert math.log(estimate.high / estimate.low) / 2 == pytest.approx(1.96 * TIMING.disturbance, rel=0.2)
    assert busy.is_exhausted(key, "latency_p50")


def test_rounds_beside_other_programs_do_not_average_their_error_away(simulation: Simulation) -> None:
    early, key = measured(simulation, 5.0, rounds=1)
    assert not early.is_exhausted(key, "latency_p50")
    evidence, key = measured(simulation, 5.0, rounds=8)
    quiet = evidence.estimate(key, "latency_p50")
    records = []
    for record in evidence.records(key):
        error = error_of(record.ratios["latency_p50"].value, 0.1)
        ratios = {name: ratio.with_log_error(error) for name, ratio in record.ratios.items()}
        records.append(replace(record, ratios=ratios, details={**record.details, CONTENTION: 0.1}))
    busy = Evidence(evidence.rounds)
    busy.rounds.records[key] = records
    estimate = busy.estimate(key, "latency_p50")
    assert estimate.value == pytest.approx(quiet.value, rel=0.01)
    assert math.log(estimate.high / estimate.low) / 2 == pytest.approx(1.96 * error_of(0.5, 0.1), rel=0.2)
    assert busy.is_narrow(key, "latency_p50")  # as far as it can be
    assert busy.is_exhausted(key, "latency_p50")


def test_further_rounds_change_what_is_known_badly_and_is_no_lasting_error(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 5.0, rounds=3)
    records = evidence.records(key)
    other = "other"
    changes = []
    for count in (1, 3):
        few = Evidence(evidence.rounds)
        few.rounds.records[key] = records[:count]
        few.rounds.records[other] = [replace(record, key=f"{other} {record.key}") for record in records[:count]]
        changes.append(few.foreseen_change(key, other, LATENCY, rounds=2))
    assert changes[0] > 1.5 * changes[1] > 0
    for name in (key, other):
        noisy = [replace(record, details={**record.details, CONTENTION: 0.4}) for record in few.rounds.records[name]]
        few.rounds.records[name] = noisy
    assert Evidence(few.rounds).foreseen_change(key, other, LATENCY, rounds=2) < changes[1]


def test_an_estimate_stays_within_its_own_measurements(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 10.0, rounds=3)
    other = Candidate("f" * 64)
    records = evidence.records(key)
    for number, (own, shared) in enumerate(((1.037, 1.4), (1.0, 1.35), (0.98, 1.38))):
        ratio = Estimate(own, own / 1.15, own * 1.15)
        records[number] = replace(records[number], ratios={"latency_p50": ratio})
        # Its neighbour was much slower in the shared rounds than by itself.
        slower = Estimate(shared, shared / 1.01, shared * 1.01)
        evidence.rounds.records.setdefault(other.key, []).append(
            replace(records[number], candidate=other.key, ratios={"latency_p50": slower})
        )
    for number in range(6):
        alone = replace(records[0], key=f"alone {number}", candidate=other.key, details={})
        evidence.rounds.records[other.key].append(replace(alone, ratios={"latency_p50": Estimate(0.8, 0.79, 0.81)}))
    evidence.rounds.records[key] = records
    evidence = Evidence(evidence.rounds)
    estimate = evidence.estimate(key, "latency_p50")
    assert 0.98 < estimate.value < 1.037
    assert estimate.low < 1 < estimate.high
    assert evidence.losses(key, LATENCY).mean() == pytest.approx(math.log(estimate.value), abs=0.01)
    assert not evidence.gains(key, LATENCY)


def test_candidates_estimated_alone_err_independently(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 10.0, rounds=3)
    alike, slower = "e" * 64, "f" * 64
    of_key, of_alike, of_slower = [], [], []
    for number, record in enumerate(evidence.records(key)):
        own, shared = (0.5185, 0.5, 0.49)[number], (0.7, 0.675, 0.69)[number]
        of_key.append(replace(record, ratios={"latency_p50": Estimate(own, own / 1.02, own * 1.02)}))
        of_alike.append(replace(of_key[-1], key=f"alike {number}", candidate=alike))
        ratios = {"latency_p50": Estimate(shared, shared / 1.01, shared * 1.01)}
        of_slower.append(replace(record, key=f"slower {number}", candidate=slower, ratios=ratios))
    for number in range(6):
        ratios = {"latency_p50": Estimate(0.4, 0.395, 0.405)}
        of_slower.append(replace(of_slower[0], key=f"alone {number}", details={}, ratios=ratios))
    evidence.rounds.records.update({key: of_key, alike: of_alike, slower: of_slower})
    evidence = Evidence(evidence.rounds)
    draws, others = (evidence.losses(each, LATENCY) for each in (key, alike))
    assert [draws.mean(), others.mean()] == pytest.approx([math.log(0.5)] * 2, abs=0.02)
    assert (draws - others).std() == pytest.approx(math.hypot(draws.std(), others.std()), rel=0.1)
    change = evidence.foreseen_change(key, alike, LATENCY, rounds=2)
    for each in (key, alike):
        ratios = [record.ratios["latency_p50"] for record in evidence.rounds.records[each]]
        evidence.rounds.records[each] = [
            replace(
                record,
                ratios={"latency_p50": ratio.with_log_error(error_of(ratio.value, 0.1))},
                details={**record.details, CONTENTION: 0.1},
            )
            for record, ratio in zip(evidence.rounds.records[each], ratios, strict=True)
        ]
    busy = Evidence(evidence.rounds)
    assert busy.lasting_error(key, LATENCY.metric) > change
    assert busy.foreseen_change(key, alike, LATENCY, rounds=2) < 1.5 * change


def test_the_source_s_own_graph_has_no_ratio_to_measure(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 9.0, rounds=2)
    same = [replace(record, details={**record.details, "same_graph": True}) for record in evidence.records(key)]
    evidence.rounds.records[key] = same
    evidence = Evidence(evidence.rounds)
    assert evidence.equals_source(key)
    assert not evidence.has(key, "latency_p50")


def test_the_range_beside_other_programs_reaches_the_ratio_on_free_cores(simulation: Simulation) -> None:
    evidence, key = measured(simulation, 5.0, rounds=3)
    on_one_thread = Estimate.exact(0.675).with_log_error(0.02)
    records = []
    for record, by_the_clock in zip(evidence.records(key), (0.46, 0.5, 0.6), strict=True):
        by_clock = Estimate.exact(by_the_clock).with_log_error(0.08)
        both = json_codec.to_json(TwoRatios(by_clock, on_one_thread, has_free_cores=True))
        records.append(replace(record, details={**record.details, DETAIL: both}))
    busy = Evidence(evidence.rounds)
    busy.rounds.records[key] = records
    estimate = busy.estimate(key, "latency_p50")
    assert estimate.low < (0.46 * 0.5 * 0.6) ** (1 / 3) < 0.675 < estimate.high
