"""Changes of level in a series of nights, found over the whole history instead of from one night to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, fmean, median
from typing import Final

from autoopt.tuning import CHANGES

_NORMAL: Final = NormalDist()
_BOUND: Final = _NORMAL.inv_cdf((1 + CHANGES.calm_share) / 2)
CALM_STEP: Final = 2 * (_NORMAL.pdf(0) - _NORMAL.pdf(_BOUND)) / CHANGES.calm_share
"""Mean of the absolute value of a standard normal variable over the smallest `CHANGES.calm_share` of its values."""


@dataclass(frozen=True)
class ChangePoint:
    """A lasting change of level."""

    index: int
    """The first night of the new level."""
    factor: float
    """New level / old level."""


def change_points(values: Sequence[float]) -> list[ChangePoint]:
    """Find the lasting changes of a positive series, oldest first.

    Optimal partitioning (Jackson et al., "An algorithm for optimal partitioning of data on an interval", IEEE Signal
    Processing Letters 12, 2005), the recursion under PELT (Killick, Fearnhead and Eckley, JASA 107, 2012), on the
    logarithms. The cost of a level is the sum of absolute deviations from its median, which a single outlier moves
    little. A slow drift is found as soon as it has moved the level by more than the noise. There is one value per
    night, the oldest first.

    Returns:
        The changes; empty for fewer than `2 * CHANGES.min_nights` nights.
    """
    logs = list(map(math.log, values))
    if len(logs) < 2 * CHANGES.min_nights:
        return []
    price = CHANGES.penalty * _noise(logs) * math.log(len(logs))
    bounds = [0, *_partition(logs, price), len(logs)]
    levels = [median(logs[begin:end]) for begin, end in pairwise(bounds)]
    points = []
    for index, (before, after) in zip(bounds[1:-1], pairwise(levels), strict=True):
        points.append(ChangePoint(index, math.exp(after - before)))
    return points


def _partition(logs: Sequence[float], price: float) -> list[int]:
    """The beginnings of the levels after the first one, in the cheapest partition."""
    count = len(logs)
    # The first level is free: a series without a change pays no price.
    costs = [-price] + [math.inf] * count
    origins = [0] * (count + 1)
    for end in range(CHANGES.min_nights, count + 1):
        for begin in range(end - CHANGES.min_nights + 1):
            cost = costs[begin] + _deviation(logs[begin:end]) + price
            if cost < costs[end]:
                costs[end], origins[end] = cost, begin
    beginnings = []
    position = origins[count]
    while position > 0:
        beginnings.append(position)
        position = origins[position]
    return beginnings[::-1]


def _deviation(logs: Sequence[float]) -> float:
    """Sum of the absolute deviations from the median."""
    middle = median(logs)
    return sum(abs(value - middle) for value in logs)


def _noise(logs: Sequence[float]) -> float:
    """Standard deviation of the noise, from the steps between nights, which a change of level hardly touches."""
    steps = sorted(abs(after - before) for before, after in pairwise(logs))
    calm = steps[: math.ceil(CHANGES.calm_share * len(steps))]
    deviation = fmean(calm) / CALM_STEP / math.sqrt(2)
    return max(CHANGES.least_noise, deviation * (1 + CHANGES.few_nights / len(steps)))
