"""A Gaussian process for a few dozen points, in plain Python: loading a numeric library costs more than the search."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

SCALES = (1.5, 4.0, 10.0)
NOISE = 0.02


class SmallGaussianProcess:
    """Kernel exp(-distance / scale) over anything that `distance` tells apart; the scale is the likeliest of a few."""

    def __init__(self, distance: Callable[[int, int], float]) -> None:
        self._distance = distance
        self._fitted: tuple[float, list[list[float]], list[float]] | None = None
        self._items: list[int] = []

    def fit(self, items: Sequence[int], y: Sequence[float]) -> None:
        """Learn `y`, which is about standardised, of `items`."""
        self._items = list(items)
        best = -math.inf
        for scale in SCALES:
            lower = _cholesky([[self._kernel(a, b, scale) + (NOISE if a == b else 0.0) for b in items] for a in items])
            weights = _backward(lower, _forward(lower, y))
            fit = sum(w * v for w, v in zip(weights, y, strict=True))
            likelihood = -0.5 * fit - sum(math.log(lower[i][i]) for i in range(len(items)))
            if likelihood > best:
                best, self._fitted = likelihood, (scale, lower, weights)

    def predict(self, item: int) -> tuple[float, float]:
        """Mean and standard deviation."""
        if self._fitted is None:
            return 0.0, 1.0
        scale, lower, weights = self._fitted
        row = [self._kernel(item, other, scale) for other in self._items]
        mean = sum(k * w for k, w in zip(row, weights, strict=True))
        part = _forward(lower, row)
        return mean, math.sqrt(max(1e-9, 1.0 - sum(v * v for v in part)))

    def _kernel(self, a: int, b: int, scale: float) -> float:
        return math.exp(-self._distance(a, b) / scale)


def _cholesky(matrix: list[list[float]]) -> list[list[float]]:
    lower: list[list[float]] = []
    for i, row in enumerate(matrix):
        made: list[float] = []
        for j in range(i + 1):
            rest = row[j] - sum(a * b for a, b in zip(made, lower[j] if j < i else made, strict=False))
            made.append(math.sqrt(max(rest, 1e-12)) if i == j else rest / lower[j][j])
        lower.append(made)
    return lower


def _forward(lower: list[list[float]], y: Sequence[float]) -> list[float]:
    solved: list[float] = []
    for row, value in zip(lower, y, strict=True):
        solved.append((value - sum(a * b for a, b in zip(row, solved, strict=False))) / row[len(solved)])
    return solved


def _backward(lower: list[list[float]], y: Sequence[float]) -> list[float]:
    solved = [0.0] * len(y)
    for i in reversed(range(len(y))):
        solved[i] = (y[i] - sum(lower[k][i] * solved[k] for k in range(i + 1, len(y)))) / lower[i][i]
    return solved


def log_improvement(mean: float, spread: float, best: float) -> float:
    """log E[max(0, best - Y)] of Y ~ N(mean, spread^2)."""
    z = (best - mean) / spread
    density = math.exp(-0.5 * min(z * z, 1400.0)) / math.sqrt(2 * math.pi)
    if z > -6:
        improvement = density + z * 0.5 * math.erfc(-z / math.sqrt(2))
        return math.log(max(improvement, 1e-300)) + math.log(spread)
    return -0.5 * z * z - math.log(math.sqrt(2 * math.pi)) - 2 * math.log(-z) + math.log(spread)
