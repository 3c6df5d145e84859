"""Intervals over few independent units."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autoopt.measure.intervals.replicas import (
    block_interval,
    effective_count,
    log_interval,
    mean_of,
    quantile_of,
    t_quantile,
    trimmed_mean,
    widened,
)
from autoopt.metrics import Estimate


@pytest.mark.parametrize("units", [4, 8, 30])
def test_an_interval_covers_the_truth_at_its_rate(units):
    rng = np.random.default_rng(units)
    covered = 0
    for trial in range(400):
        estimate = log_interval(rng.normal(math.log(0.8), 0.02, units).tolist(), seed=trial)
        covered += estimate.low <= 0.8 <= estimate.high
    assert 0.92 <= covered / 400 <= 1.0


def test_one_unit_says_nothing_of_its_spread():
    estimate = log_interval([math.log(3.0)])
    assert (estimate.low, estimate.value, estimate.high) == pytest.approx((1.5, 3.0, 6.0))


def test_one_disturbed_session_among_eight_moves_the_centre_little():
    assert log_interval([0.0] * 7 + [1.0]).value == pytest.approx(1.0)


def test_what_the_units_cannot_show_is_added():
    estimate = log_interval([0.0] * 8, beyond=0.01)
    assert (estimate.low, estimate.high) == pytest.approx((math.exp(-0.01), math.exp(0.01)))


def test_an_estimate_of_one_unit_is_never_exact():
    alone = widened(Estimate.exact(4.0), 1, 0.01)
    assert (alone.low, alone.value, alone.high) == pytest.approx((2.0, 4.0, 8.0))
    estimate = widened(Estimate(4.0, 3.9, 4.1), 5, 0.01)
    assert estimate.low < 3.9 < 4.1 < estimate.high


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


def test_the_t_quantile_is_that_of_scipy():
    from scipy.stats import t

    for degrees in (1, 2, 3, 4, 7, 15, 100):
        assert t_quantile(0.975, degrees) == pytest.approx(float(t.ppf(0.975, degrees)), rel=1e-5)


BLOCKS = [np.array([3.0, 1.0, 2.0]), np.array([10.0]), np.array([4.0, 4.0, 7.0, 5.0])]


def expected_times(repetitions: list[int]) -> np.ndarray:
    return np.concatenate([block for block, number in zip(BLOCKS, repetitions, strict=True) for _ in range(number)])


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
def test_quantiles_of_resamples_are_those_of_their_times(share: float) -> None:
    resamples = [[1, 1, 1], [0, 3, 0], [2, 0, 1]]
    found = quantile_of(BLOCKS, share)(np.array(resamples))
    assert found.tolist() == pytest.approx([np.quantile(expected_times(each), share) for each in resamples])


def test_means_of_resamples_leave_out_what_does_not_count() -> None:
    counts = np.array([True, True, True, False, True, True, True, True])
    found = mean_of(BLOCKS, counts)(np.array([[1, 1, 1], [2, 5, 0]]))
    assert found.tolist() == pytest.approx([26 / 7, 2.0])


def test_intervals_over_blocks_cover_the_truth_at_their_rate() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        blocks = [math.exp(rng.normal(0, 0.05)) * rng.exponential(1.0, 50) for _ in range(9)]
        estimate = block_interval(quantile_of(blocks, 0.5), blocks, 0.0)
        covered += estimate.low <= math.log(2) <= estimate.high
    assert 0.9 <= covered / 200 <= 1.0


def test_one_block_says_nothing_of_its_spread() -> None:
    estimate = block_interval(quantile_of(BLOCKS[:1], 0.5), BLOCKS[:1], 0.0)
    assert (estimate.low, estimate.value, estimate.high) == pytest.approx((1.0, 2.0, 4.0))
