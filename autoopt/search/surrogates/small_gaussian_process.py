"""A Gaussian process for a few dozen points, in plain Python.

Loading a numeric library takes longer than a whole search of a small space. The textbook is C. E. Rasmussen, C. K. I.
Williams: Gaussian Processes for Machine Learning, 2006, algorithm 2.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

SCALES: Final = (1.5, 4.0, 10.0)
"""Length scales that are tried; distances count the settings in which two points differ."""
NOISE: Final = 0.02
"""Variance of the noise, of standardised values."""
_LARGEST_SQUARE: Final = 1400.0
"""Beyond it, exp(-z^2 / 2) underflows."""

Triangle: TypeAlias = list[list[float]]
"""Lower triangular matrix; row i has i + 1 entries."""


@dataclass(frozen=True)
class _Fit:
    items: list[int]
    scale: float
    lower: Triangle
    weights: list[float]


class SmallGaussianProcess:
    """A Gaussian process with the kernel exp(-distance / scale); the scale is the most likely of a few."""

    def __init__(self, distance: Callable[[int, int], float]) -> None:
        self._distance = distance
        self._fit: _Fit | None = None

    def fit(self, items: Sequence[int], y: Sequence[float]) -> None:
        """Learn the values `y`, about standardised, of `items`."""
        highest = -math.inf
        for scale in SCALES:
            lower = _cholesky([self._row(scale, item, items[: i + 1]) for i, item in enumerate(items)])
            weights = _solve_transposed(lower, _solve(lower, y))
            fit = sum(w * v for w, v in zip(weights, y, strict=True))
            likelihood = -0.5 * fit - sum(math.log(row[-1]) for row in lower)
            if likelihood > highest:
                highest = likelihood
                self._fit = _Fit(list(items), scale, lower, weights)

    def predict(self, item: int) -> tuple[float, float]:
        """Return mean and standard deviation."""
        if self._fit is None:
            return 0.0, 1.0
        row = [math.exp(-self._distance(item, other) / self._fit.scale) for other in self._fit.items]
        mean = sum(k * w for k, w in zip(row, self._fit.weights, strict=True))
        explained = sum(value * value for value in _solve(self._fit.lower, row))
        return mean, math.sqrt(max(1e-9, 1.0 - explained))

    def _row(self, scale: float, item: int, others: Sequence[int]) -> list[float]:
        """The covariances of `item` and `others`."""
        row = []
        for other in others:
            covariance = math.exp(-self._distance(item, other) / scale)
            if other == item:
                covariance += NOISE
            row.append(covariance)
        return row


def chance_below(limit: float, mean: float, deviation: float) -> float:
    """Compute P(Y < limit) of Y ~ N(mean, deviation^2)."""
    return 0.5 * math.erfc((mean - limit) / deviation / math.sqrt(2))


def log_expected_improvement(mean: float, deviation: float, best: float) -> float:
    """Compute log E[max(0, best - Y)] of Y ~ N(mean, deviation^2)."""
    z = (best - mean) / deviation
    density = math.exp(-0.5 * min(z * z, _LARGEST_SQUARE)) / math.sqrt(2 * math.pi)
    if z > -6:
        improvement = density + z * 0.5 * math.erfc(-z / math.sqrt(2))
        return math.log(max(improvement, 1e-300)) + math.log(deviation)
    # Far below, the first term of the asymptotic series: density / z^2.
    return -0.5 * z * z - math.log(math.sqrt(2 * math.pi)) - 2 * math.log(-z) + math.log(deviation)


def _cholesky(matrix: Triangle) -> Triangle:
    """Decompose a symmetric matrix, of which the lower triangle is given."""
    lower: Triangle = []
    for i, row in enumerate(matrix):
        current: list[float] = []
        for j in range(i):
            current.append((row[j] - _dot(current, lower[j])) / lower[j][j])
        current.append(math.sqrt(max(row[i] - _dot(current, current), 1e-12)))
        lower.append(current)
    return lower


def _solve(lower: Triangle, y: Sequence[float]) -> list[float]:
    """Solve L x = y."""
    x: list[float] = []
    for row, value in zip(lower, y, strict=True):
        x.append((value - _dot(row, x)) / row[-1])
    return x


def _solve_transposed(lower: Triangle, y: Sequence[float]) -> list[float]:
    """Solve L^T x = y."""
    x = [0.0] * len(y)
    for i in reversed(range(len(y))):
        x[i] = (y[i] - sum(lower[k][i] * x[k] for k in range(i + 1, len(y)))) / lower[i][i]
    return x


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    """Sum of products, as long as both sequences last."""
    return sum(x * y for x, y in zip(a, b, strict=False))
