"""Metrics and ratios of latency measurements of fake models."""

from __future__ import annotations

import pytest
from fake_machine import Machine
from measure_helpers import measured

from autoopt.measure.latency.results import STATISTICS, results
from autoopt.measure.request import MeasureRequest, ModelFile
from autoopt.metrics import Estimate

WITH_SOURCE = MeasureRequest(ModelFile("candidate"), ModelFile("source", {"io_binding": True}), (), None)


@pytest.mark.parametrize("replicas_are_units", [True, False])
@pytest.mark.parametrize("times", [2, 5])
def test_what_a_model_does_now_and_then_is_in_its_mean_and_percentiles(machine, times, replicas_are_units):
    settings = {"seconds": 90.0, "fixed": True, "replicas": 8 if replicas_are_units else 2}
    done = measured(machine.occasionally_slow(20, times), machine.occasionally_slow(20, 1), **settings)
    assert done.by_replica is replicas_are_units
    found = results(WITH_SOURCE, done, 1, {})
    slower = {"latency_p50": 1.0, "latency_p99": times, "latency_mean": 0.9 + 0.1 * times}
    for name, expected in slower.items():
        assert found.metrics[name].value == pytest.approx(20 * expected, rel=0.05)
        assert found.ratios[name].value == pytest.approx(expected, rel=0.05)
    assert found.metrics["throughput"].value == pytest.approx(50 / slower["latency_mean"], rel=0.05)
    assert found.details["interrupted"] == 0


def test_blocks_in_which_others_had_the_core_are_in_no_value(machine):
    done = measured(machine.occasionally_slow(20, 5, stolen=True), machine.model(20_000), seconds=60.0, fixed=True)
    found = results(WITH_SOURCE, done, 1, {})
    assert 0 < found.details["interrupted"] < len(done.pairs) / 4
    for name in ("latency_p50", "latency_p90", "latency_p99", "latency_mean"):
        assert found.metrics[name].value == pytest.approx(20, rel=0.01)


def test_where_others_always_had_the_core_the_calmest_blocks_give_all_values(machine):
    done = measured(machine.model(20_000, stolen=0.2), machine.model(20_000), seconds=20.0, fixed=True)
    found = results(WITH_SOURCE, done, 1, {})
    assert len(done.pairs) / 2 < found.details["interrupted"] < len(done.pairs)
    assert set(found.ratios) == set(found.metrics) == set(STATISTICS)


def test_a_baseline_has_ratios_of_exactly_one(machine: Machine) -> None:
    baseline = MeasureRequest(ModelFile("source"), ModelFile("source"))
    reply = results(baseline, measured(machine.model(100), None, seconds=1.0), 1, {})
    assert reply.source_metrics == reply.metrics
    assert reply.ratios == dict.fromkeys(STATISTICS, Estimate.exact(1.0))
    assert reply.details["identical"] is True


def test_only_requested_metrics_are_computed(machine: Machine) -> None:
    request = MeasureRequest(ModelFile("candidate"), metrics=("latency_p90", "size"))
    reply = results(request, measured(machine.model(100), None, seconds=1.0), 1, {})
    assert set(reply.metrics) == {"latency_p90"}
    assert reply.ratios == reply.source_metrics == {}


def test_throughput_counts_the_items_of_a_batch(machine: Machine) -> None:
    request = MeasureRequest(ModelFile("candidate"), metrics=("throughput",))
    reply = results(request, measured(machine.model(1000, noise=0), None, seconds=1.0), 32, {})
    assert reply.metrics["throughput"].value == pytest.approx(32_000)


def test_the_first_session_does_not_count_as_a_start(machine: Machine) -> None:
    starts = iter([9_000_000])

    def slow_start(number):
        machine.now += next(starts, 0)
        return machine.model(100)(number)

    request = MeasureRequest(ModelFile("candidate"), metrics=("cold_start", "first_inference"))
    reply = results(request, measured(slow_start, None, seconds=2.0, fixed=True), 1, {})
    assert reply.metrics["cold_start"].value == pytest.approx(1.0)
    assert reply.metrics["first_inference"].value == pytest.approx(0.1, rel=0.1)
