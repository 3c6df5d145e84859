"""Intervals over few independent units."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autoopt.measure.intervals.replicas import effective_count, log_interval, prediction_interval, trimmed_mean, widened
from autoopt.metrics import Estimate


@pytest.mark.parametrize("units", [4, 8, 30])
def test_an_interval_covers_the_truth_at_its_rate(units):
    rng = np.random.default_rng(units)
    covered = 0
    for trial in range(400):
        found = log_interval(rng.normal(math.log(0.8), 0.02, units).tolist(), seed=trial)
        covered += found.low <= 0.8 <= found.high
    assert 0.92 <= covered / 400 <= 1.0


def test_one_unit_says_nothing_of_its_spread():
    found = log_interval([math.log(3.0)])
    assert (found.low, found.value, found.high) == pytest.approx((1.5, 3.0, 6.0))


def test_one_disturbed_session_among_eight_moves_the_centre_little():
    assert log_interval([0.0] * 7 + [1.0]).value == pytest.approx(1.0)


def test_what_the_units_cannot_show_is_added():
    found = log_interval([0.0] * 8, beyond=0.01)
    assert (found.low, found.high) == pytest.approx((math.exp(-0.01), math.exp(0.01)))


def test_an_estimate_of_one_unit_is_never_exact():
    alone = widened(Estimate.exact(4.0), 1, 0.01)
    assert (alone.low, alone.value, alone.high) == pytest.approx((2.0, 4.0, 8.0))
    found = widened(Estimate(4.0, 3.9, 4.1), 5, 0.01)
    assert found.low < 3.9 < 4.1 < found.high


def test_more_units_make_it_narrower():
    rng = np.random.default_rng(1)
    widths = [(e := log_interval(rng.normal(0, 0.05, n).tolist())).high - e.low for n in (4, 16, 64)]
    assert widths[0] > widths[1] > widths[2]


def test_the_trimmed_mean_leaves_the_outer_ones_out():
    assert trimmed_mean(np.array([1.0, 2.0, 3.0])) == pytest.approx(2.0)
    assert trimmed_mean(np.array([-9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.5])) == pytest.approx(1.0)
    assert trimmed_mean(np.arange(12.0)) == pytest.approx(5.5)


def test_values_that_follow_each_other_count_less():
    rng = np.random.default_rng(0)
    free = rng.normal(size=200)
    drifting = np.cumsum(free)
    assert effective_count(free.tolist()) > 100
    assert effective_count(drifting.tolist()) < 20
    assert effective_count([1.0, 1.0]) == 2.0


def test_thet_quantile_is_that_of_scipy():
    from scipy.stats import t

    from autoopt.measure.intervals.replicas import t_quantile

    for degrees in (1, 2, 3, 4, 7, 15, 100):
        assert t_quantile(0.975, degrees) == pytest.approx(float(t.ppf(0.975, degrees)), rel=1e-5)


@pytest.mark.parametrize("spread", [0.001, 0.004, 0.02, 0.1])
def test_a_further_measurement_lies_in_the_interval_of_several(spread):
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        *known, further = np.exp(rng.normal(math.log(0.7), spread, 6))
        found = prediction_interval([Estimate(value, value * 0.99, value * 1.01) for value in known])
        inside += found.low <= further <= found.high
    assert inside / 2000 >= 0.93


def test_measurements_that_agree_by_chance_are_judged_by_those_made_beside_them():
    def around(value, spread):
        return [Estimate(value * (1 + x), value, value) for x in (-spread, 0.0, spread)]

    alike = around(0.5, 0.0001)
    alone = prediction_interval(alike)
    rough = prediction_interval(alike, [around(0.9, 0.03), around(1.2, 0.03)])
    assert rough.value == alone.value
    assert rough.high / rough.value - 1 > 5 * (alone.high / alone.value - 1)
    assert prediction_interval(alike, [around(0.9, 0.0001), around(1.2, 0.5)]) == alone  # one of them is odd


def test_one_odd_measurement_of_several_moves_the_value_little_and_the_interval_much():
    found = prediction_interval([Estimate(value, value, value + 0.01) for value in (0.64, 0.86, 0.64, 0.64)])
    assert found.value == pytest.approx(0.64)
    assert found.high > 0.86


def test_what_is_known_exactly_or_once_stays_as_it_is():
    assert prediction_interval([Estimate.exact(1.0)] * 4) == Estimate.exact(1.0)
    assert prediction_interval([Estimate(0.5, 0.4, 0.6)]) == Estimate(0.5, 0.4, 0.6)
