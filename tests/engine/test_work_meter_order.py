"""The order of meters: by the time that each takes for every candidate that it rejects."""

from __future__ import annotations

import pytest

from autoopt.engine.work.meter_order import TOO_SLOW, MeterStatistics, is_too_slow, rejects_slow
from autoopt.engine.work.problem import Goal
from autoopt.metrics import Estimate, Objective, get_metric

LATENCY = Objective("latency_p50", "minimize")


def goal(*objectives: Objective) -> Goal:
    return Goal(objectives, (), tuple(get_metric(objective.metric) for objective in objectives))


def test_a_meter_without_calls_has_no_figure() -> None:
    assert MeterStatistics().seconds_per_rejection("task") is None


def test_quick_meters_come_before_slow_ones_until_something_is_rejected() -> None:
    statistics = MeterStatistics()
    statistics.add_time("task", 1.0)
    statistics.add_time("task", 3.0)
    statistics.add_time("latency", 0.5)
    assert statistics.seconds_per_rejection("task") == pytest.approx(4.0)
    assert statistics.seconds_per_rejection("latency") == pytest.approx(1.0)


def test_each_rejection_makes_a_meter_cheaper_and_each_pass_dearer() -> None:
    statistics = MeterStatistics()
    statistics.add_time("task", 1.0)
    figures = [statistics.seconds_per_rejection("task")]
    for rejected in (True, False, False):
        statistics.add_decision("task", rejected=rejected)
        figures.append(statistics.seconds_per_rejection("task"))
    assert figures == [pytest.approx(2.0), pytest.approx(3 / 2), pytest.approx(2.0), pytest.approx(5 / 2)]


@pytest.mark.parametrize(
    ("objectives", "rejects"),
    [
        ([LATENCY], True),
        ([Objective("size", "minimize")], False),
        ([Objective("cold_start", "minimize")], False),
        ([LATENCY, Objective("size", "minimize")], False),
    ],
)
def test_only_where_the_latency_alone_decides_is_slowness_a_reason(objectives: list[Objective], rejects: bool) -> None:
    assert rejects_slow(goal(*objectives)) is rejects


def test_a_candidate_is_too_slow_if_its_whole_interval_is() -> None:
    assert not is_too_slow(goal(LATENCY), {})
    assert not is_too_slow(goal(LATENCY), {"latency_p50": Estimate(2 * TOO_SLOW, 0.9 * TOO_SLOW, 4 * TOO_SLOW)})
    assert is_too_slow(goal(LATENCY), {"latency_p50": Estimate(1.2 * TOO_SLOW, 1.1 * TOO_SLOW, 1.3 * TOO_SLOW)})
