"""Verdicts on constraints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.measure.constraints import judge
from autoopt.metrics import Constraint, Estimate, get_metric

ACCURACY, LATENCY, MSE = get_metric("accuracy"), get_metric("latency_p50"), get_metric("mse")


@pytest.mark.parametrize(
    ("drop", "holds", "feasible"),
    [
        ((0.0, -0.002, 0.002), "holds", True),
        ((0.005, -0.004, 0.015), "uncertain", True),
        ((0.012, 0.004, 0.02), "uncertain", False),
        ((0.05, 0.03, 0.07), "fails", False),
    ],
)
def test_a_drop_is_judged_by_its_paired_interval(drop, holds, feasible):
    wide = Estimate(0.95, 0.5, 1.0)
    verdict = judge(Constraint("accuracy", max_drop=0.01), ACCURACY, wide, wide, None, Estimate(*drop))
    assert verdict.status == holds
    assert (verdict.violation <= 0) is feasible


def test_with_confidence_the_worst_end_counts():
    drop = Estimate(0.005, -0.004, 0.015)
    exact = Estimate.exact(0.9)
    assert judge(Constraint("accuracy", max_drop=0.01), ACCURACY, exact, exact, None, drop).violation <= 0
    assert (
        judge(Constraint("accuracy", max_drop=0.01, confidence=0.95), ACCURACY, exact, exact, None, drop).violation > 0
    )


def test_the_level_of_confidence_is_the_one_asked_for():
    drop = Estimate(0.0, -0.0098, 0.0098)  # a standard error of 0.005
    exact = Estimate.exact(0.9)
    bounds = {0.5: 0.0001, 0.9: 0.0065, 0.975: 0.0099}
    for confidence, bound in bounds.items():
        for max_drop, holds in ((bound, True), (bound - 0.0003, False)):
            constraint = Constraint("accuracy", max_drop=max_drop, confidence=confidence)
            assert (judge(constraint, ACCURACY, exact, exact, None, drop).violation <= 0) is holds


def test_what_is_less_sure_than_asked_for_has_a_reason():
    drop = Estimate(0.0, -0.0098, 0.0098)
    exact = Estimate.exact(0.9)
    verdict = judge(Constraint("accuracy", max_drop=0.01, confidence=0.99), ACCURACY, exact, exact, None, drop)
    assert verdict.violation > 0
    assert verdict.status == "uncertain"


def test_a_drop_is_towards_worse_whatever_the_direction():
    better, worse = Estimate.exact(0.1), Estimate.exact(0.3)
    assert judge(Constraint("mse", max_drop=0.1), MSE, worse, better).status == "fails"
    assert judge(Constraint("mse", max_drop=0.1), MSE, better, worse).status == "holds"


def test_the_measured_ratio_comes_before_the_quotient_of_the_values():
    constraint = Constraint("latency_p50", max_ratio=0.9)
    verdict = judge(constraint, LATENCY, Estimate.exact(2.0), Estimate.exact(2.0), Estimate(0.8, 0.79, 0.81))
    assert verdict.status == "holds"
    assert judge(constraint, LATENCY, Estimate.exact(2.0), Estimate.exact(2.0)).status == "fails"


def test_the_worst_of_several_bounds_decides():
    verdict = judge(Constraint("accuracy", min=0.5, max=0.6), ACCURACY, Estimate.exact(0.7))
    assert verdict.status == "fails"
    assert verdict.violation == pytest.approx(0.1)
    assert "max 0.6" in verdict.reason


def test_a_relative_bound_without_a_source_is_not_judged():
    assert judge(Constraint("size", max_ratio=0.1), get_metric("size"), Estimate.exact(1e9)).violation <= 0


@given(st.floats(0, 1), st.floats(0, 0.2), st.floats(0, 1))
def test_holds_and_fails_agree_with_the_point_estimate(value, half, bound):
    estimate = Estimate(value, value - half, value + half)
    verdict = judge(Constraint("accuracy", min=bound), ACCURACY, estimate)
    if verdict.status == "holds":
        assert verdict.violation <= 0
    if verdict.status == "fails":
        assert verdict.violation > 0
    assert verdict.reason.count("\n") == 0
