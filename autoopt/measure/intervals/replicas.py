"""Intervals over independent units of measurement: replicas of a session, or pairs of blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np

from autoopt.metrics import Estimate

Array: TypeAlias = "np.ndarray[Any, Any]"

RESAMPLES = 1000
FEW = 4
"""Fewest replicas whose spread says something of the spread between sessions."""
BETWEEN = 0.004
"""Standard deviation of the logarithm of a ratio from one process to the next on a machine that is left alone."""


def interval(logs: Sequence[float], *, level: float = 0.95, beyond: float = 0.0, seed: int = 0) -> Estimate:
    """exp of the centre of `logs` (logarithms of ratios or times of independent units) with a bootstrap interval.

    The centre is a trimmed mean: without the outer unit on each side from 7 units on, without the outer quarters from
    12 on. The percentile bootstrap of few
    units is too narrow, so its ends are moved out by sqrt(n / (n - 1)) and the ratio of the t to the normal quantile
    (Hesterberg, The American Statistician 69, 2015). `beyond` is the half-width, in logarithms, of what the units
    cannot show; it is added as independent errors are. One unit has an interval of a factor of two: nothing is known
    of its spread.
    """
    values = np.sort(np.asarray(logs, np.float64))
    centre = trimmed(values)
    if len(values) < 2:
        return _exp(centre, math.log(2), math.log(2))
    rng = np.random.default_rng(seed)
    drawn = trimmed(np.sort(values[rng.integers(0, len(values), (RESAMPLES, len(values)))], axis=1))
    low, high = np.quantile(drawn, [0.5 - level / 2, 0.5 + level / 2])
    wider = _widening(len(values), level)
    down, up = wider * (centre - float(low)), wider * (float(high) - centre)
    return _exp(centre, math.hypot(beyond, max(0.0, down)), math.hypot(beyond, max(0.0, up)))


def widened(estimate: Estimate, units: int, beyond: float) -> Estimate:
    """A bootstrap estimate over that many units of a positive value, its ends moved out as those of `interval` are."""
    centre = math.log(estimate.value)
    if units < 2:
        return _exp(centre, math.log(2), math.log(2))
    wider = _widening(units, 0.95)
    down, up = wider * (centre - math.log(estimate.low)), wider * (math.log(estimate.high) - centre)
    return _exp(centre, math.hypot(beyond, down), math.hypot(beyond, up))


def together(estimates: Sequence[Estimate], beside: Sequence[Sequence[Estimate]] = ()) -> Estimate:
    """Separate measurements of one positive value as one: their median, and the interval in which a further one will
    lie with a probability of 95 %.

    Student's prediction interval over the logarithms. Few may agree by chance, so it is never less than what comes of
    the spread of all that was measured at that time, nor than what differs between processes anyway. A single one stays
    as it is, and so does what is the same each time.

    Args:
        beside: measurements of other values, made in turns with these.
    """
    if all(e == estimates[0] for e in estimates):
        return estimates[0]
    logs = np.log([e.value for e in estimates])
    count = len(logs)
    groups = [logs, *(np.log([e.value for e in group]) for group in beside if len(group) > 1)]
    least = NormalDist().inv_cdf(0.975) * BETWEEN * math.sqrt(2)
    half = max(_further(groups[:1], count), _further(groups, count), least)
    return _exp(float(np.median(logs)), half, half)


def _further(groups: Sequence[Array], count: int) -> float:
    """How far from the median of `count` measurements a further one may lie, by the median of the groups' spreads."""
    spread = float(np.median([g.std(ddof=1) for g in groups]))
    degrees = sum(len(g) - 1 for g in groups)
    return _t_quantile(0.975, degrees) * spread * math.sqrt(1 + math.pi / (2 * count))


def trimmed(ordered: Array) -> Any:
    """The trimmed mean along the last, sorted axis."""
    count = ordered.shape[-1]
    cut = count // 4 if count >= 12 else (count + 1) // 8
    kept = ordered[..., cut : count - cut].mean(axis=-1)
    return kept if np.ndim(kept) else float(kept)


def _exp(centre: float, down: float, up: float) -> Estimate:
    return Estimate(math.exp(centre), math.exp(centre - down), math.exp(centre + up))


@lru_cache(maxsize=256)
def _widening(count: int, level: float) -> float:
    normal = NormalDist().inv_cdf(0.5 + level / 2)
    return _t_quantile(0.5 + level / 2, count - 1) / normal * math.sqrt(count / (count - 1))


def _t_quantile(share: float, degrees: int) -> float:
    """The quantile of Student's t: exact for 1 and 2 degrees, else the expansion of Hill (CACM 13, 1970, algorithm
    396), good to 4 digits. scipy has it too, but takes longer to import than a measurement takes."""
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


def effective(values: Sequence[float]) -> float:
    """How many independent values those in time order are worth: n (1 - r) / (1 + r), r the correlation of
    neighbours where it is positive."""
    array = np.asarray(values, np.float64)
    if len(array) < 4 or float(array.std()) == 0.0:
        return float(len(array))
    r = float(np.corrcoef(array[:-1], array[1:])[0, 1])
    r = min(max(0.0, r), 0.99)
    return max(1.0, len(array) * (1 - r) / (1 + r))
