"""Intervals of statistics of all times in some blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autoopt.measure.intervals.replicas import block_interval, mean_of, quantile_of

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
