"""The gain of a model in one night."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nights_cases import entry

from autoopt.metrics import Direction, Estimate, Objective
from autoopt.report.sweeps.gains import gain_of
from autoopt.results import SweepEntry


def entry_of(metric: str, goal: Direction, ratio: float) -> SweepEntry:
    """A model with one objective, and the ratio of its metric."""
    found = entry("m", 0.5)
    assert found.result is not None
    assert found.best is not None
    best = replace(found.best, ratios={metric: Estimate.exact(ratio)})
    return replace(found, result=replace(found.result, best=best, objectives=(Objective(metric, goal),)))


@pytest.mark.parametrize(
    ("metric", "goal", "ratio"),
    [("latency_p50", "minimize", 0.5), ("size", "minimize", 0.5), ("throughput", "maximize", 2.0)],
)
def test_twice_as_good_is_two_for_each_metric(metric: str, goal: Direction, ratio: float) -> None:
    assert gain_of(entry_of(metric, goal, ratio)) == Estimate.exact(2.0)


def test_a_metric_that_reads_best_as_a_value_has_no_gain() -> None:
    assert gain_of(entry_of("accuracy", "maximize", 1.1)) is None


def test_without_a_best_model_or_its_ratio_there_is_no_gain() -> None:
    failed = entry("m", None)
    without_ratio = entry_of("latency_p50", "minimize", 0.0)
    assert (gain_of(failed), gain_of(without_ratio)) == (None, None)
