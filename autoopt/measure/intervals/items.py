"""Confidence intervals of 95 %."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np

from autoopt.metrics import Estimate

Array: TypeAlias = "np.ndarray[Any, Any]"
LEVEL = 0.95
Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
RESAMPLES = 300
"""Of items, for a statistic of all of them."""


def wilson(good: float, count: int) -> Estimate:
    """A share `good / count` with its Wilson score interval.

    Raises:
        ValueError: no items.
    """
    if count <= 0:
        raise ValueError("a share needs at least one item")
    share = good / count
    centre = (share + Z * Z / (2 * count)) / (1 + Z * Z / count)
    half = Z / (1 + Z * Z / count) * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return Estimate(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def mean_interval(values: Sequence[float] | Array, resamples: int = 1000, seed: int = 0) -> Estimate:
    """The mean of independent values with its percentile bootstrap interval."""
    array = np.asarray(values, np.float64)
    if len(array) < 2 or bool(np.all(array == array[0])):
        return Estimate.exact(float(array.mean()))
    rng = np.random.default_rng(seed)
    per_draw = max(1, (1 << 20) // len(array))
    sizes = [min(per_draw, resamples - done) for done in range(0, resamples, per_draw)]
    drawn = np.concatenate([array[rng.integers(0, len(array), (n, len(array)))].mean(axis=1) for n in sizes])
    return _around(float(array.mean()), drawn)


def bootstrap(statistic: Callable[[Array], float], count: int) -> Estimate:
    """`statistic(indices)` of all `count` items with the percentile bootstrap interval over items.

    Resamples for which the statistic is undefined (ValueError, not finite) are left out; with fewer than 20 left the
    interval is as wide as the values seen.
    """
    value = statistic(np.arange(count))
    if count < 2:
        return Estimate.exact(value)
    rng = np.random.default_rng(0)
    drawn: list[float] = []
    for _ in range(RESAMPLES):
        try:
            one = statistic(rng.integers(0, count, count))
        except ValueError:
            continue
        if math.isfinite(one):
            drawn.append(one)
    if len(drawn) < 20:
        return Estimate(value, min([value, *drawn]), max([value, *drawn]))
    return _around(value, np.array(drawn))


def _around(value: float, drawn: Array) -> Estimate:
    low, high = np.quantile(drawn, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return Estimate(value, min(value, float(low)), max(value, float(high)))


def paired_share(lost: int, won: int, count: int) -> Estimate:
    """Difference of two shares of the same items, `(lost - won) / count`: `lost` items are right only in the first,
    `won` only in the second. Score interval of Tango (Statistics in Medicine 17, 1998), solved by bisection.

    Raises:
        ValueError: no items.
    """
    if count <= 0:
        raise ValueError("a share needs at least one item")
    value = (lost - won) / count

    def score(delta: float) -> float:
        twice = 2 * count
        linear = -lost - won + (2 * count - lost + won) * delta
        constant = -won * delta * (1 - delta)
        root = max(0.0, linear * linear - 4 * twice * constant)
        share = max((math.sqrt(root) - linear) / (2 * twice), 0.0)
        spread = count * (2 * share + delta * (1 - delta))
        above = lost - won - count * delta
        return above / math.sqrt(spread) if spread > 0 else math.copysign(math.inf, above) if above else 0.0

    return Estimate(value, _solve(score, -1.0, value, Z), _solve(score, value, 1.0, -Z))


def _solve(score: Callable[[float], float], low: float, high: float, wanted: float) -> float:
    """Where the falling function `score` is `wanted`, or the outer end where it never gets there."""
    if score(low) < wanted:
        return low
    if score(high) > wanted:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        if score(middle) > wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2
