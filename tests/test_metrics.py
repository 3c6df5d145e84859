"""Metrics by name, and constraints on them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.measure.quality.task import task_metric
from autoopt.metrics import (
    METRICS,
    START_UP,
    STEADY_STATE,
    WORST,
    Constraint,
    Direction,
    Estimate,
    Metric,
    Objective,
    default_objective,
    get_metric,
    headline_metrics,
    known_metric,
    latency_objective,
    significant,
)

NUMBERS = st.floats(0.01, 1e6)


def test_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'latency_p50'"):
        get_metric("latency_p5O")
    own = Metric("mine", "1", "maximize", "custom", "")
    assert get_metric("mine", {"mine": own}) is own
    assert get_metric("top3_accuracy").direction == "maximize"


def test_every_metric_says_its_unit_and_kind() -> None:
    assert all(m.unit and m.kind and m.summary for m in METRICS.values())
    assert {m.unit for m in METRICS.values() if m.name.startswith("latency")} == {"ms"}


@given(NUMBERS, NUMBERS)
def test_max_drop_is_absolute_and_towards_worse(value: float, source: float) -> None:
    bound = Constraint("x", max_drop=0.0)
    assert (bound.violation(value, source, "maximize") <= 0) == (value >= source)
    assert (bound.violation(value, source, "minimize") <= 0) == (value <= source)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_the_worst_of_several_bounds_counts(value: float, source: float, bound: float) -> None:
    both = Constraint("x", max=bound, max_ratio=2.0).violation(value, source, "minimize")
    alone = [
        Constraint("x", **one).violation(value, source, "minimize") for one in ({"max": bound}, {"max_ratio": 2.0})
    ]
    assert both == max(alone)


def test_a_relative_bound_without_a_source_is_not_judged() -> None:
    assert Constraint("x", max_ratio=0.1).violation(5.0, None, "minimize") == 0.0


def test_headlines_are_the_objectives_and_the_constrained_metrics() -> None:
    objectives = [Objective("throughput", "maximize"), Objective("size", "minimize")]
    constraints = [Constraint("accuracy", max_drop=0.01), Constraint("size", max_ratio=0.5)]
    assert headline_metrics(objectives, constraints) == ("throughput", "size", "accuracy")


def test_without_objectives_the_median_latency_leads() -> None:
    assert headline_metrics([]) == ("latency_p50",)
    assert headline_metrics([], [Constraint("cosine", min=0.99)]) == ("latency_p50", "cosine")


def test_the_latency_objective_is_the_first_time_of_a_warm_session() -> None:
    objectives = [Objective("cold_start", "minimize"), Objective("latency_p99", "minimize")]
    assert latency_objective(objectives) == "latency_p99"
    assert latency_objective(objectives[:1]) is None


def test_warm_and_start_up_metrics_are_all_latencies() -> None:
    assert {m.name for m in METRICS.values() if m.kind == "latency"} == {*STEADY_STATE, *START_UP}


def test_task_metrics_name_their_function_and_others_have_none() -> None:
    for metric in METRICS.values():
        assert bool(metric.function) is (metric.kind == "task")
        if metric.function:
            assert callable(task_metric(metric.name))


def test_top_n_accuracy_exists_for_every_n_above_zero() -> None:
    metric = get_metric("top7_accuracy")
    assert metric.arguments == {"count": 7}
    assert "7 highest" in metric.summary
    for name in ("top0_accuracy", "top_accuracy", "top07_accuracy"):
        assert known_metric(name) is None


def test_metrics_are_hashable_values() -> None:
    assert len(set(METRICS.values())) == len(METRICS)
    assert get_metric("top5_accuracy") == METRICS["top5_accuracy"]


@pytest.mark.parametrize(
    ("ratio", "goal", "gain"),
    [
        (Estimate(0.9, 0.89, 0.91), "minimize", True),
        (Estimate(0.995, 0.985, 1.005), "minimize", False),  # the interval reaches 1
        (Estimate(1.1, 1.09, 1.11), "minimize", False),
        (Estimate(1.1, 1.09, 1.11), "maximize", True),
        (Estimate(1.005, 0.995, 1.015), "maximize", False),
    ],
)
def test_a_gain_is_certain_beyond_the_interval(ratio: Estimate, goal: Direction, gain: bool) -> None:
    assert ratio.is_gain(goal) == gain


@given(value=st.floats(1e-3, 1e3), deviation=st.floats(0.0, 0.5))
def test_a_log_error_widens_an_interval_as_independent_errors_do(value: float, deviation: float) -> None:
    exact = Estimate.exact(value)
    assert exact.with_log_error(deviation).log_deviation == pytest.approx(deviation, abs=1e-9)
    twice = exact.with_log_error(0.3).with_log_error(deviation)
    assert twice.log_deviation == pytest.approx(math.hypot(0.3, deviation))
    assert twice.value == value


RATIOS = st.tuples(st.floats(0.05, 20), st.floats(1, 4), st.floats(1, 4)).map(
    lambda parts: Estimate(parts[0], parts[0] / parts[1], parts[0] * parts[2])
)


@given(RATIOS)
def test_the_inverse_of_the_inverse_is_the_estimate(ratio: Estimate) -> None:
    inverse = ratio.inverse()
    assert inverse.low <= inverse.value <= inverse.high
    twice = inverse.inverse()
    assert (twice.value, twice.low, twice.high) == pytest.approx((ratio.value, ratio.low, ratio.high))
    assert inverse.log_deviation == pytest.approx(ratio.log_deviation, abs=1e-12)


def test_the_inverse_of_an_interval_that_reaches_zero_has_no_upper_end() -> None:
    assert Estimate(2.0, 0.0, 4.0).inverse() == Estimate(0.5, 0.25, math.inf)
    assert Estimate.exact(0.0).inverse() == Estimate.exact(0.0)


@given(RATIOS)
def test_no_ratio_is_a_gain_for_both_directions(ratio: Estimate) -> None:
    gains = [ratio.is_gain("minimize"), ratio.is_gain("maximize")]
    assert not all(gains)
    assert any(gains) == (ratio.low > 1 or ratio.high < 1)


@given(RATIOS)
def test_an_estimate_is_decided_if_its_interval_is_within_a_factor_of_two(ratio: Estimate) -> None:
    assert ratio.decided == (ratio.high <= 2 * ratio.low)
    assert Estimate.exact(ratio.value).decided
    assert Estimate(0.0, 0.0, 5.0).decided  # no positive value: no factor to know it within


@given(NUMBERS, NUMBERS, st.floats(0.1, 10))
def test_a_bound_on_the_ratio_is_that_on_the_value(value: float, source: float, bound: float) -> None:
    of_ratio = Constraint("size", max_ratio=bound).violation(value, source, "minimize")
    of_value = Constraint("size", max=bound * source).violation(value, None, "minimize")
    assert of_ratio * source == pytest.approx(of_value, rel=1e-6, abs=1e-6 * source * max(1.0, bound))


@given(NUMBERS, st.floats(0, 10), st.floats(0, 10))
def test_a_tighter_bound_is_broken_further(value: float, one: float, other: float) -> None:
    tight, loose = min(one, other), max(one, other)
    violations = [Constraint("mse", max_drop=drop).violation(value, 5.0, "minimize") for drop in (tight, loose)]
    assert violations[0] >= violations[1]


def test_a_constraint_without_bounds_holds() -> None:
    assert Constraint("size").violation(1e12, 1.0, "minimize") == 0.0


@pytest.mark.parametrize(
    ("value", "text"), [(WORST, "infinite"), (-WORST, "infinite"), (WORST / 10, "infinite"), (1234.5, "1.23e+03")]
)
def test_what_stands_for_an_infinite_error_is_named(value: float, text: str) -> None:
    assert significant(value, 3) == text


def test_a_decoder_is_faster_by_its_tokens_and_any_other_model_by_its_time() -> None:
    assert default_objective(decodes=True) == Objective("tokens_per_second", "maximize")
    assert default_objective(decodes=False) == Objective("latency_p50", "minimize")


def test_one_value_is_better_than_another_beyond_the_errors_of_both() -> None:
    low, near, high = Estimate(1.0, 0.9, 1.1), Estimate(1.1, 1.0, 1.2), Estimate(1.3, 1.2, 1.4)
    assert low.is_better(high, "minimize")
    assert high.is_better(low, "maximize")
    assert not low.is_better(near, "minimize")
    assert not high.is_better(low, "minimize")
    assert Estimate.exact(1.0).is_better(Estimate.exact(1.001), "minimize")
    assert not Estimate.exact(1.0).is_better(Estimate.exact(1.0), "minimize")
