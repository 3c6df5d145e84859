"""95 % confidence intervals over the items of a data set."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import NormalDist

import numpy as np

from autoopt.metrics import Estimate

LEVEL = 0.95
Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
RESAMPLES = 300
"""For a statistic of all items, which may be slow to compute."""
MEAN_RESAMPLES = 1000
"""For a mean, which is drawn for many resamples at once."""
FEWEST_RESAMPLES = 20
"""With fewer that have a value, the interval is their whole range: their quantiles would say nothing."""
DRAWS_AT_ONCE = 1 << 20
"""Values resampled in one numpy call: limits memory."""


def wilson(successes: float, count: int) -> Estimate:
    """Estimate a share `successes / count` with the score interval of Wilson (JASA 22, 1927).

    Raises:
        ValueError: there are no items.
    """
    if count <= 0:
        raise ValueError("a share needs at least one item")
    share = successes / count
    centre = (share + Z * Z / (2 * count)) / (1 + Z * Z / count)
    half = Z / (1 + Z * Z / count) * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return Estimate(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def mean_interval(values: Sequence[float] | np.ndarray) -> Estimate:
    """Estimate the mean of independent values with its percentile bootstrap interval."""
    array = np.asarray(values, np.float64)
    mean = float(array.mean())
    if len(array) < 2 or bool(np.all(array == array[0])):
        return Estimate.exact(mean)
    rng = np.random.default_rng(0)  # the same values always have the same interval
    per_draw = max(1, DRAWS_AT_ONCE // len(array))
    means = []
    for start in range(0, MEAN_RESAMPLES, per_draw):
        size = min(per_draw, MEAN_RESAMPLES - start)
        means.append(array[rng.integers(0, len(array), (size, len(array)))].mean(axis=1))
    return percentile_interval(mean, np.concatenate(means))


def bootstrap(statistic: Callable[[np.ndarray], float], count: int) -> Estimate:
    """Estimate `statistic(indices)` of all `count` items with the percentile bootstrap interval over items.

    Resamples for which the statistic is undefined (ValueError or not finite) are skipped. With fewer than 20 left the
    interval spans all resampled values.
    """
    value = statistic(np.arange(count))
    if count < 2:
        return Estimate.exact(value)
    rng = np.random.default_rng(0)  # the same items always have the same interval
    per_draw = max(1, DRAWS_AT_ONCE // count)
    resampled: list[float] = []
    for start in range(0, RESAMPLES, per_draw):
        for indices in rng.integers(0, count, (min(per_draw, RESAMPLES - start), count)):
            with suppress(ValueError):
                resampled.append(statistic(indices))
    resampled = list(filter(math.isfinite, resampled))
    if len(resampled) < FEWEST_RESAMPLES:
        return Estimate(value, min([value, *resampled]), max([value, *resampled]))
    return percentile_interval(value, np.array(resampled))


def percentile_interval(value: float, resampled: np.ndarray) -> Estimate:
    """Make the estimate of a value with the interval that holds 95 % of those of the resamples."""
    low, high = np.quantile(resampled, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return Estimate(value, min(value, float(low)), max(value, float(high)))


def paired_share(lost: int, won: int, count: int) -> Estimate:
    """Estimate the difference of two shares of the same items, `(lost - won) / count`.

    Score interval of Tango (Statistics in Medicine 17, 1998), solved by bisection. `lost` items are right only in the
    first, `won` ones only in the second.

    Raises:
        ValueError: there are no items.
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
        if spread > 0:
            return above / math.sqrt(spread)
        return math.copysign(math.inf, above) if above else 0.0

    return Estimate(value, _solve(score, -1.0, value, Z), _solve(score, value, 1.0, -Z))


def _solve(score: Callable[[float], float], low: float, high: float, target: float) -> float:
    """Find where the falling function `score` reaches `target`, or the outer end if it never does."""
    if score(low) < target:
        return low
    if score(high) > target:
        return high
    for _ in range(60):  # as often as a float can tell the halves apart
        middle = (low + high) / 2
        if score(middle) > target:
            low = middle
        else:
            high = middle
    return (low + high) / 2
