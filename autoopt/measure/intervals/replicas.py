"""95 % confidence intervals over independent measurements: replicas of a session, pairs of blocks, or blocks of times.

All work on logarithms: ratios of times multiply, and their errors are relative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from autoopt.measure.intervals.items import DRAWS_AT_ONCE, MEAN_RESAMPLES, RESAMPLES, percentile_interval
from autoopt.metrics import Estimate

FEW = 4
"""Fewest replicas whose spread says something about the spread between sessions."""


def log_interval(logs: Sequence[float], *, beyond: float = 0.0, seed: int = 0) -> Estimate:
    """Estimate exp of the centre of logarithms (of ratios or times of independent units) with a bootstrap interval.

    The centre is a trimmed mean: without the outer unit on each side from 7 units on, without the outer quarters from
    12 on. The percentile bootstrap of few units is too narrow, so its ends are moved out by sqrt(n / (n - 1)) and the
    ratio of the t to the normal quantile (Hesterberg, The American Statistician 69, 2015). A single unit says nothing
    about its spread and gets an interval of a factor of two. `beyond` is the half-width, in logarithms, of an
    independent error that the units do not show.
    """
    values = np.sort(np.asarray(logs, np.float64))
    centre = float(trimmed_mean(values))
    if len(values) < 2:
        return _exp(centre, math.log(2), math.log(2))
    rng = np.random.default_rng(seed)
    resamples = values[rng.integers(0, len(values), (MEAN_RESAMPLES, len(values)))]
    centres = trimmed_mean(np.sort(resamples, axis=1))
    low, high = np.quantile(centres, [0.025, 0.975])
    factor = _widening(len(values))
    down, up = factor * (centre - float(low)), factor * (float(high) - centre)
    return _exp(centre, math.hypot(beyond, max(0.0, down)), math.hypot(beyond, max(0.0, up)))


def widened(estimate: Estimate, units: int, beyond: float) -> Estimate:
    """Move out the ends of a bootstrap estimate of a positive value over `units` units, as `log_interval` does."""
    centre = math.log(estimate.value)
    if units < 2:
        return _exp(centre, math.log(2), math.log(2))
    factor = _widening(units)
    down, up = factor * (centre - math.log(estimate.low)), factor * (math.log(estimate.high) - centre)
    return _exp(centre, math.hypot(beyond, down), math.hypot(beyond, up))


def over_stretches(estimate: Estimate, logs: Sequence[float]) -> Estimate:
    """Move out the ends of an estimate over units in time order, at least `FEW`, if neighbouring units are alike.

    The means of `FEW` stretches of neighbours depend on each other less than the units do; the interval holds the t
    interval over them (batch means).
    """
    means = [float(np.mean(stretch)) for stretch in np.array_split(np.asarray(logs), FEW)]
    half = math.exp(t_quantile(0.975, FEW - 1) * float(np.std(means, ddof=1)) / math.sqrt(FEW))
    value = estimate.value
    return Estimate(value, min(estimate.low, value / half), max(estimate.high, value * half))


def trimmed_mean(ordered: np.ndarray) -> np.ndarray:
    """Compute the trimmed mean along the last, sorted axis."""
    count = ordered.shape[-1]
    cut = count // 4 if count >= 12 else (count + 1) // 8
    return np.asarray(ordered[..., cut : count - cut].mean(axis=-1))


def _exp(centre: float, down: float, up: float) -> Estimate:
    return Estimate(math.exp(centre), math.exp(centre - down), math.exp(centre + up))


@lru_cache(maxsize=256)
def _widening(count: int) -> float:
    normal = NormalDist().inv_cdf(0.975)
    return t_quantile(0.975, count - 1) / normal * math.sqrt(count / (count - 1))


def t_quantile(share: float, degrees: int) -> float:
    """Compute the quantile of Student's t for `share` in 0.5..1, to 4 digits.

    Exact for 1 and 2 degrees, else the expansion of Hill (CACM 13, 1970, algorithm 396). scipy has it too, but takes
    longer to import than a measurement takes.
    """
    if degrees == 1:
        return math.tan(math.pi * (share - 0.5))
    p = 2 * (1 - share)
    if degrees == 2:
        return math.sqrt(2 / (p * (2 - p)) - 2)
    n = float(degrees)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * p) ** (2 / n)
    if y > a + 0.05:
        x = NormalDist().inv_cdf(p / 2)
        y = x * x
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (n + 1) / (
            n + 2
        ) + 1 / y
    return math.sqrt(n * y)


def effective_count(values: Sequence[float]) -> float:
    """Compute how many independent values a series in time order is worth.

    n (1 - r) / (1 + r), with r the correlation of neighbours where it is positive.
    """
    array = np.asarray(values, np.float64)
    before, after = array[:-1], array[1:]
    if len(array) < 4 or float(before.std()) == 0.0 or float(after.std()) == 0.0:
        return float(len(array))
    correlation = float(np.corrcoef(before, after)[0, 1])
    correlation = min(max(0.0, correlation), 0.99)
    return max(1.0, len(array) * (1 - correlation) / (1 + correlation))


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
