"""95 % bootstrap intervals of statistics of all times in some blocks, over the blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from autoopt.measure.intervals.items import DRAWS_AT_ONCE, RESAMPLES, percentile_interval
from autoopt.measure.intervals.replicas import widened
from autoopt.metrics import Estimate

Statistic: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Compute a statistic of resamples, given how often each has each block: (resamples, blocks) -> (resamples,)."""


def quantile_of(blocks: Sequence[np.ndarray], share: float) -> Statistic:
    """Make the statistic of a quantile of all times, interpolated as `np.quantile` does."""
    times = np.concatenate(blocks)
    order = np.argsort(times)
    times = times[order]
    block_of_time = np.repeat(np.arange(len(blocks)), list(map(len, blocks)))[order]

    def quantile(repetitions: np.ndarray) -> np.ndarray:
        ends = np.cumsum(repetitions[:, block_of_time], axis=1)
        last = ends[:, -1] - 1
        positions = share * last
        ranks = positions.astype(int)
        below = times[(ends <= ranks[:, None]).sum(axis=1)]
        above = times[(ends <= np.minimum(ranks + 1, last)[:, None]).sum(axis=1)]
        return np.asarray(below + (above - below) * (positions - ranks))

    return quantile


def mean_of(blocks: Sequence[np.ndarray], counts: np.ndarray) -> Statistic:
    """Make the statistic of the mean of the times that count, of which `counts` marks those of all blocks in turn."""
    starts = np.cumsum([0, *map(len, blocks)])[:-1]
    sums = np.add.reduceat(np.where(counts, np.concatenate(blocks), 0.0), starts)
    numbers = np.add.reduceat(counts.astype(np.float64), starts)
    return lambda repetitions: np.asarray(repetitions @ sums / (repetitions @ numbers))


def block_interval(statistic: Statistic, blocks: Sequence[np.ndarray], beyond: float) -> Estimate:
    """Estimate a positive statistic of all blocks, with an interval as wide as `log_interval` makes it for few units.

    `beyond` is the half-width, in logarithms, of an independent error that the blocks do not show.
    """
    count = len(blocks)
    value = float(statistic(np.ones((1, count), int))[0])
    if count < 2:
        return widened(Estimate.exact(value), count, beyond)
    rng = np.random.default_rng(0)  # the same times always have the same interval
    per_draw = max(1, DRAWS_AT_ONCE // sum(map(len, blocks)))
    resampled = []
    for start in range(0, RESAMPLES, per_draw):
        size = min(per_draw, RESAMPLES - start)
        drawn = rng.integers(0, count, (size, count)) + count * np.arange(size)[:, None]
        repetitions = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        resampled.append(statistic(repetitions))
    return widened(percentile_interval(value, np.concatenate(resampled)), count, beyond)
