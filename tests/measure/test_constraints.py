"""Verdicts on constraints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.measure.constraints import Observation, items_to_resolve, judge, share_resolution
from autoopt.measure.intervals.items import paired_share
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
    verdict = judge(Constraint("accuracy", max_drop=0.01), ACCURACY, Observation(wide, wide, drop=Estimate(*drop)))
    assert verdict.status == holds
    assert (verdict.violation <= 0) is feasible


def test_with_confidence_the_worst_end_counts():
    drop = Estimate(0.005, -0.004, 0.015)
    exact = Estimate.exact(0.9)
    seen = Observation(exact, exact, drop=drop)
    assert judge(Constraint("accuracy", max_drop=0.01), ACCURACY, seen).violation <= 0
    assert judge(Constraint("accuracy", max_drop=0.01, confidence=0.95), ACCURACY, seen).violation > 0


def test_the_level_of_confidence_is_the_one_asked_for():
    drop = Estimate(0.0, -0.0098, 0.0098)  # a standard error of 0.005
    exact = Estimate.exact(0.9)
    bounds = {0.5: 0.0001, 0.9: 0.0065, 0.975: 0.0099}
    for confidence, bound in bounds.items():
        for max_drop, holds in ((bound, True), (bound - 0.0003, False)):
            constraint = Constraint("accuracy", max_drop=max_drop, confidence=confidence)
            assert (judge(constraint, ACCURACY, Observation(exact, exact, drop=drop)).violation <= 0) is holds


def test_what_is_less_sure_than_asked_for_has_a_reason():
    drop = Estimate(0.0, -0.0098, 0.0098)
    exact = Estimate.exact(0.9)
    verdict = judge(
        Constraint("accuracy", max_drop=0.01, confidence=0.99), ACCURACY, Observation(exact, exact, drop=drop)
    )
    assert verdict.violation > 0
    assert verdict.status == "uncertain"


def test_a_drop_is_towards_worse_whatever_the_direction():
    better, worse = Estimate.exact(0.1), Estimate.exact(0.3)
    assert judge(Constraint("mse", max_drop=0.1), MSE, Observation(worse, better)).status == "fails"
    assert judge(Constraint("mse", max_drop=0.1), MSE, Observation(better, worse)).status == "holds"


def test_the_measured_ratio_comes_before_the_quotient_of_the_values():
    constraint = Constraint("latency_p50", max_ratio=0.9)
    two = Estimate.exact(2.0)
    assert judge(constraint, LATENCY, Observation(two, two, ratio=Estimate(0.8, 0.79, 0.81))).status == "holds"
    assert judge(constraint, LATENCY, Observation(two, two)).status == "fails"


def test_the_worst_of_several_bounds_decides():
    verdict = judge(Constraint("accuracy", min=0.5, max=0.6), ACCURACY, Observation(Estimate.exact(0.7)))
    assert verdict.status == "fails"
    assert verdict.violation == pytest.approx(0.1)
    assert "of at most 0.6 does not hold" in verdict.reason


def test_a_relative_bound_without_a_source_is_not_judged():
    assert judge(Constraint("size", max_ratio=0.1), get_metric("size"), Observation(Estimate.exact(1e9))).violation <= 0


@given(st.floats(0, 1), st.floats(0, 0.2), st.floats(0, 1))
def test_holds_and_fails_agree_with_the_point_estimate(value, half, bound):
    estimate = Estimate(value, value - half, value + half)
    verdict = judge(Constraint("accuracy", min=bound), ACCURACY, Observation(estimate))
    if verdict.status == "holds":
        assert verdict.violation <= 0
    if verdict.status == "fails":
        assert verdict.violation > 0
    assert verdict.reason.count("\n") == 0


@pytest.mark.parametrize("items", [1, 54, 152, 2000])
def test_the_resolution_of_the_data_is_the_interval_of_no_change(items):
    assert share_resolution(items) == pytest.approx(paired_share(0, 0, items).high, abs=1e-6)


@pytest.mark.parametrize("drop", [0.001, 0.01, 0.3])
def test_as_many_items_as_named_resolve_the_drop(drop):
    items = items_to_resolve(drop)
    assert share_resolution(items) <= drop < share_resolution(items - 1)


@pytest.mark.parametrize(("items", "is_data_limited"), [(54, True), (1000, False)])
def test_an_uncertainty_that_every_candidate_has_is_one_of_the_data(items, is_data_limited):
    source = Estimate(0.95, 0.8, 1.0)
    drop = Estimate(0.0, -0.05, 0.05)
    seen = Observation(source, source, drop=drop, resolution=share_resolution(items))
    verdict = judge(Constraint("accuracy", max_drop=0.01), ACCURACY, seen)
    assert verdict.status == "uncertain"
    assert verdict.is_data_limited is is_data_limited


def test_a_broken_limit_is_the_candidates_own_whatever_the_data():
    source = Estimate(0.95, 0.8, 1.0)
    seen = Observation(source, source, drop=Estimate(0.02, -0.05, 0.09), resolution=share_resolution(54))
    verdict = judge(Constraint("accuracy", max_drop=0.01), ACCURACY, seen)
    assert verdict.violation > 0
    assert not verdict.is_data_limited


def test_who_asks_for_confidence_is_told_what_is_not_certain():
    source = Estimate(0.95, 0.8, 1.0)
    seen = Observation(source, source, drop=Estimate(0.0, -0.05, 0.05), resolution=share_resolution(54))
    assert not judge(Constraint("accuracy", max_drop=0.04, confidence=0.9), ACCURACY, seen).is_data_limited


@pytest.mark.parametrize(
    ("constraint", "metric", "is_data_limited"),
    [
        (Constraint("agreement", min=0.98), "agreement", True),
        (Constraint("agreement", min=0.9), "agreement", False),
        (Constraint("accuracy", min=0.98), "accuracy", False),
        (Constraint("accuracy", min_ratio=0.99), "accuracy", True),
        (Constraint("cer", max_ratio=1.01), "cer", True),
    ],
)
def test_every_kind_of_bound_knows_what_the_data_can_show(constraint, metric, is_data_limited):
    one = Estimate(1.0, 0.5, 1.5)
    seen = Observation(one, Estimate.exact(1.0), ratio=one, resolution=share_resolution(64))
    verdict = judge(constraint, get_metric(metric), seen)
    assert verdict.status == "uncertain"
    assert verdict.is_data_limited is is_data_limited
