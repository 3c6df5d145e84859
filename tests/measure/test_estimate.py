"""Metrics and ratios of latency measurements of fake models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_machine import Machine, MakeSession
from measure_helpers import compared

from autoopt.measure.latency.busy import Load
from autoopt.measure.latency.estimate import STATISTICS, estimates
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Estimate
from autoopt.model.model_file import ModelFile

WITH_SOURCE = MeasureRequest(ModelFile("candidate"), ModelFile("source", {"io_binding": True}))


@pytest.mark.parametrize("replicas_are_units", [True, False])
@pytest.mark.parametrize("times", [2, 5])
def test_what_a_model_does_now_and_then_is_in_its_mean_and_percentiles(machine, times, replicas_are_units):
    settings = {"seconds": 90.0, "fixed": True, "replicas": 8 if replicas_are_units else 2}
    comparison = compared(machine.occasionally_slow(20, times), machine.occasionally_slow(20, 1), **settings)
    assert comparison.by_replica is replicas_are_units
    found = estimates(WITH_SOURCE, comparison)
    slower = {"latency_p50": 1.0, "latency_p99": times, "latency_mean": 0.9 + 0.1 * times}
    for name, expected in slower.items():
        assert found.metrics[name].value == pytest.approx(20 * expected, rel=0.05)
        assert found.ratios[name].value == pytest.approx(expected, rel=0.05)
    assert found.metrics["throughput"].value == pytest.approx(50 / slower["latency_mean"], rel=0.05)


def test_rare_outliers_are_not_in_the_mean(machine: Machine) -> None:
    slow = machine.occasionally(10, lambda: machine.run(2000), every=150)
    comparison = compared(slow, machine.model(10_000), seconds=30.0, fixed=True, replicas=2)
    found = estimates(WITH_SOURCE, comparison)
    assert found.ratios["latency_mean"].value == pytest.approx(1.0, rel=0.03)


MEASURED = ("latency_p50", "latency_p90", "latency_p99", "latency_mean")


def test_contention_widens_every_ratio_but_that_of_equal_times(machine: Machine) -> None:
    comparison = compared(machine.model(10), machine.model(20), seconds=3.0)
    quiet, busy = estimates(WITH_SOURCE, comparison), estimates(WITH_SOURCE, comparison, Load(2.0, 6.0).contention)
    for name in (*MEASURED, "throughput"):
        assert busy.ratios[name].value == quiet.ratios[name].value
        assert busy.ratios[name].high > 1.05 * quiet.ratios[name].high
        assert busy.ratios[name].low < quiet.ratios[name].low / 1.05
    assert busy.metrics == quiet.metrics
    equal = compared(machine.model(10, noise=0), machine.model(10, noise=0), seconds=3.0)
    ratio = estimates(WITH_SOURCE, equal, Load(2.0, 6.0).contention).ratios["latency_p50"]
    assert ratio.high < 1.01


def test_preempted_time_is_in_no_value(machine: Machine) -> None:
    candidate = machine.occasionally(20, lambda: machine.preempt(80))
    found = estimates(WITH_SOURCE, compared(candidate, machine.model(20_000), seconds=30.0, fixed=True))
    for name in MEASURED:
        assert found.metrics[name].value == pytest.approx(20)
        assert found.source_metrics[name].value == pytest.approx(20, rel=0.06)
    assert found.metrics["throughput"].value == pytest.approx(50)


def test_preempted_time_is_in_no_value_of_a_short_model(machine: Machine) -> None:
    """Its calls are not timed on the core."""
    candidate = machine.occasionally(0.025, lambda: machine.preempt(5), every=700)
    comparison = compared(candidate, machine.model(50, noise=0), seconds=3.0, fixed=True)
    found = estimates(WITH_SOURCE, comparison)
    for name in MEASURED:
        assert found.metrics[name].value == pytest.approx(0.025)
        assert found.ratios[name].value == pytest.approx(0.5)
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
    found = estimates(WITH_SOURCE, comparison)
    for name in MEASURED:
        assert found.metrics[name].value == pytest.approx(20, rel=0.01)


def test_where_others_always_interrupt_the_calmest_blocks_give_all_values(machine: Machine) -> None:
    candidate = machine.occasionally(1.0, lambda: machine.preempt(1), every=1)
    comparison = compared(candidate, machine.model(1000), seconds=2.0, fixed=True)
    found = estimates(WITH_SOURCE, comparison)
    assert len(comparison.pairs) / 4 < len(comparison.selected_pairs()) <= len(comparison.pairs)
    assert set(found.ratios) == set(found.metrics) == set(STATISTICS)


@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_every_metric_has_an_interval_with_few_sessions_too(machine: Machine, replicas: int) -> None:
    comparison = compared(machine.model(500), machine.model(1000), seconds=1.0, replicas=replicas)
    found = estimates(WITH_SOURCE, comparison)
    for group in (found.metrics, found.source_metrics, found.ratios):
        assert set(group) == set(STATISTICS)
        for estimate in group.values():
            assert 0 < estimate.low < estimate.value < estimate.high


def test_one_pair_gives_wide_intervals_of_all_metrics(machine: Machine) -> None:
    comparison = compared(machine.model(2_000_000), machine.model(2_000_000), seconds=1.0)
    found = estimates(WITH_SOURCE, comparison)
    for name in MEASURED:
        assert found.ratios[name].high / found.ratios[name].low > 3


def test_a_baseline_has_ratios_of_exactly_one(machine: Machine) -> None:
    baseline = MeasureRequest(ModelFile("source"), ModelFile("source"))
    found = estimates(baseline, compared(machine.model(100), None, seconds=1.0))
    assert found.source_metrics == found.metrics
    assert found.ratios == dict.fromkeys(STATISTICS, Estimate.exact(1.0))


def test_only_requested_metrics_are_computed(machine: Machine) -> None:
    request = MeasureRequest(ModelFile("candidate"), metrics=("latency_p90", "size"))
    found = estimates(request, compared(machine.model(100), None, seconds=1.0))
    assert set(found.metrics) == {"latency_p90"}
    assert found.ratios == found.source_metrics == {}


def test_throughput_counts_the_items_of_a_batch(machine: Machine) -> None:
    settings = MeasurementSettings(batch_size=32)
    request = MeasureRequest(ModelFile("candidate"), metrics=("throughput",), settings=settings)
    found = estimates(request, compared(machine.model(1000, noise=0), None, seconds=1.0))
    assert found.metrics["throughput"].value == pytest.approx(32_000)


def test_the_first_session_does_not_count_as_a_start(machine: Machine) -> None:
    starts = iter([9_000_000])

    def slow_start(number):
        machine.now += next(starts, 0)
        return machine.model(100)(number)

    request = MeasureRequest(ModelFile("candidate"), metrics=("cold_start", "first_inference"))
    found = estimates(request, compared(slow_start, None, seconds=2.0, fixed=True))
    assert found.metrics["cold_start"].value == pytest.approx(1.0)
    assert found.metrics["first_inference"].value == pytest.approx(0.1, rel=0.1)
