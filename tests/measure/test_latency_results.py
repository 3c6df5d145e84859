"""Metrics and ratios of latency measurements of fake models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_machine import Machine, MakeSession
from measure_helpers import compared

from autoopt.measure.latency.machine import Load
from autoopt.measure.latency.results import STATISTICS, results
from autoopt.measure.request import MeasureRequest
from autoopt.metrics import Estimate
from autoopt.model.model_file import ModelFile

WITH_SOURCE = MeasureRequest(ModelFile("candidate"), ModelFile("source", {"io_binding": True}))


@pytest.mark.parametrize("replicas_are_units", [True, False])
@pytest.mark.parametrize("times", [2, 5])
def test_what_a_model_does_now_and_then_is_in_its_mean_and_percentiles(machine, times, replicas_are_units):
    settings = {"seconds": 90.0, "fixed": True, "replicas": 8 if replicas_are_units else 2}
    comparison = compared(machine.occasionally_slow(20, times), machine.occasionally_slow(20, 1), **settings)
    assert comparison.by_replica is replicas_are_units
    reply = results(WITH_SOURCE, comparison, 1, {})
    slower = {"latency_p50": 1.0, "latency_p99": times, "latency_mean": 0.9 + 0.1 * times}
    for name, expected in slower.items():
        assert reply.metrics[name].value == pytest.approx(20 * expected, rel=0.05)
        assert reply.ratios[name].value == pytest.approx(expected, rel=0.05)
    assert reply.metrics["throughput"].value == pytest.approx(50 / slower["latency_mean"], rel=0.05)
    assert reply.details["interrupted"] == 0


def test_rare_outliers_are_not_in_the_mean(machine: Machine) -> None:
    slow = machine.occasionally(10, lambda: machine.run(2000), every=150)
    comparison = compared(slow, machine.model(10_000), seconds=30.0, fixed=True, replicas=2)
    reply = results(WITH_SOURCE, comparison, 1, {})
    assert reply.ratios["latency_mean"].value == pytest.approx(1.0, rel=0.03)


MEASURED = ("latency_p50", "latency_p90", "latency_p99", "latency_mean")


def test_contention_widens_every_ratio_but_that_of_equal_times(machine: Machine) -> None:
    comparison = compared(machine.model(10), machine.model(20), seconds=3.0)
    quiet, busy = results(WITH_SOURCE, comparison, 1, {}), results(WITH_SOURCE, comparison, 1, {}, Load(2.0, 6.0))
    for name in (*MEASURED, "throughput"):
        assert busy.ratios[name].value == quiet.ratios[name].value
        assert busy.ratios[name].high > 1.05 * quiet.ratios[name].high
        assert busy.ratios[name].low < quiet.ratios[name].low / 1.05
    assert busy.metrics == quiet.metrics
    equal = compared(machine.model(10, noise=0), machine.model(10, noise=0), seconds=3.0)
    ratio = results(WITH_SOURCE, equal, 1, {}, Load(2.0, 6.0)).ratios["latency_p50"]
    assert ratio.high < 1.01


def test_preempted_time_is_in_no_value(machine: Machine) -> None:
    candidate = machine.occasionally(20, lambda: machine.preempt(80))
    reply = results(WITH_SOURCE, compared(candidate, machine.model(20_000), seconds=30.0, fixed=True), 1, {})
    for name in MEASURED:
        assert reply.metrics[name].value == pytest.approx(20)
        assert reply.source_metrics[name].value == pytest.approx(20, rel=0.06)
    assert reply.metrics["throughput"].value == pytest.approx(50)


def test_preempted_time_is_in_no_value_of_a_short_model(machine: Machine) -> None:
    """Its calls are not timed on the core."""
    candidate = machine.occasionally(0.025, lambda: machine.preempt(5), every=700)
    comparison = compared(candidate, machine.model(50, noise=0), seconds=3.0, fixed=True)
    reply = results(WITH_SOURCE, comparison, 1, {})
    assert 0 < reply.details["interrupted"] < len(comparison.pairs) / 2
    for name in MEASURED:
        assert reply.metrics[name].value == pytest.approx(0.025)
        assert reply.ratios[name].value == pytest.approx(0.5)
    assert len(comparison.selected_pairs()) == len(comparison.pairs)  # a median does not notice


def test_blocks_that_others_interrupted_are_in_no_value_of_a_model_that_waits(machine: Machine) -> None:
    def half_on_a_device(event: Callable[[], None], every: int) -> MakeSession:
        make = machine.occasionally(10, event, every)

        def session(number: int) -> Callable[[], None]:
            call = make(number)

            def wait_and_call() -> None:
                machine.wait(10)
                call()

            return wait_and_call

        return session

    candidate = half_on_a_device(lambda: machine.preempt(80), 10)
    comparison = compared(candidate, half_on_a_device(lambda: None, 10), seconds=30.0, fixed=True)
    reply = results(WITH_SOURCE, comparison, 1, {})
    assert 0 < reply.details["interrupted"] < len(comparison.pairs) / 2
    for name in MEASURED:
        assert reply.metrics[name].value == pytest.approx(20, rel=0.01)


def test_where_others_always_interrupt_the_calmest_blocks_give_all_values(machine: Machine) -> None:
    candidate = machine.occasionally(1.0, lambda: machine.preempt(1), every=1)
    comparison = compared(candidate, machine.model(1000), seconds=2.0, fixed=True)
    reply = results(WITH_SOURCE, comparison, 1, {})
    assert len(comparison.pairs) / 4 < len(comparison.selected_pairs()) <= len(comparison.pairs)
    assert set(reply.ratios) == set(reply.metrics) == set(STATISTICS)


@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_every_metric_has_an_interval_with_few_sessions_too(machine: Machine, replicas: int) -> None:
    comparison = compared(machine.model(500), machine.model(1000), seconds=1.0, replicas=replicas)
    reply = results(WITH_SOURCE, comparison, 1, {})
    for estimates in (reply.metrics, reply.source_metrics, reply.ratios):
        assert set(estimates) == set(STATISTICS)
        for estimate in estimates.values():
            assert 0 < estimate.low < estimate.value < estimate.high


def test_one_pair_gives_wide_intervals_of_all_metrics(machine: Machine) -> None:
    comparison = compared(machine.model(2_000_000), machine.model(2_000_000), seconds=1.0)
    reply = results(WITH_SOURCE, comparison, 1, {})
    for name in MEASURED:
        assert reply.ratios[name].high / reply.ratios[name].low > 3


def test_a_baseline_has_ratios_of_exactly_one(machine: Machine) -> None:
    baseline = MeasureRequest(ModelFile("source"), ModelFile("source"))
    reply = results(baseline, compared(machine.model(100), None, seconds=1.0), 1, {})
    assert reply.source_metrics == reply.metrics
    assert reply.ratios == dict.fromkeys(STATISTICS, Estimate.exact(1.0))
    assert reply.details["identical"] is True


def test_only_requested_metrics_are_computed(machine: Machine) -> None:
    request = MeasureRequest(ModelFile("candidate"), metrics=("latency_p90", "size"))
    reply = results(request, compared(machine.model(100), None, seconds=1.0), 1, {})
    assert set(reply.metrics) == {"latency_p90"}
    assert reply.ratios == reply.source_metrics == {}


def test_throughput_counts_the_items_of_a_batch(machine: Machine) -> None:
    request = MeasureRequest(ModelFile("candidate"), metrics=("throughput",))
    reply = results(request, compared(machine.model(1000, noise=0), None, seconds=1.0), 32, {})
    assert reply.metrics["throughput"].value == pytest.approx(32_000)


def test_the_first_session_does_not_count_as_a_start(machine: Machine) -> None:
    starts = iter([9_000_000])

    def slow_start(number):
        machine.now += next(starts, 0)
        return machine.model(100)(number)

    request = MeasureRequest(ModelFile("candidate"), metrics=("cold_start", "first_inference"))
    reply = results(request, compared(slow_start, None, seconds=2.0, fixed=True), 1, {})
    assert reply.metrics["cold_start"].value == pytest.approx(1.0)
    assert reply.metrics["first_inference"].value == pytest.approx(0.1, rel=0.1)
