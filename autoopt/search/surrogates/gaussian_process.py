"""A Gaussian process for a few hundred points.

It follows C. E. Rasmussen, C. K. I. Williams: Gaussian Processes for Machine Learning, 2006. Only numpy is loaded:
libraries of machine learning take seconds to import, longer than the whole search of a small space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.tuning import SEARCH

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.float64]"

JITTER: Final = 1e-6
"""Variance that keeps a covariance positive definite."""


@dataclass(frozen=True)
class Scales:
    """Hyperparameters: the length scale, the noise relative to the function's variance, and that variance."""

    length: float
    noise: float
    variance: float = 1.0


class GaussianProcess:
    """A Gaussian process with a Matern 5/2 kernel and noise.

    The first `fit` finds the most likely scales unless they are given.
    """

    def __init__(self, scales: Scales | None = None) -> None:
        self._scales = scales

    def fit(self, x: Array, y: Array) -> None:
        """Learn `y`, which is about standardised, at the rows `x`. A second call keeps the scales of the first."""
        import numpy as np

        if self._scales is None:
            _, self._scales = max(log_likelihoods(x, y), key=itemgetter(0))
        values, vectors = np.linalg.eigh(correlation(distances(x, x), self._scales.length))
        self._x = x
        # The inverse of the covariance is the product of this matrix and its transpose, divided by the variance.
        self._root = vectors / np.sqrt(np.maximum(values, 0.0) + self._scales.noise)
        self._weights = self._root @ (self._root.T @ y)

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation, without the noise of a measurement, at each row."""
        import numpy as np

        assert self._scales is not None
        across = correlation(distances(x, self._x), self._scales.length)
        explained = np.square(across @ self._root).sum(axis=1)
        deviation = np.sqrt(self._scales.variance * np.maximum(1.0 - explained, 1e-10))
        return across @ self._weights, deviation

    def draw(self, x: Array, count: int, rng: np.random.Generator) -> Array:
        """Draw values, without the noise of a measurement, at all rows together: [count, rows]."""
        import numpy as np

        assert self._scales is not None
        across = correlation(distances(x, self._x), self._scales.length)
        projected = across @ self._root
        covariance = correlation(distances(x, x), self._scales.length) - projected @ projected.T
        covariance[np.diag_indices_from(covariance)] += JITTER
        root = math.sqrt(self._scales.variance) * np.linalg.cholesky(covariance)
        drawn: Array = across @ self._weights + rng.standard_normal((count, len(x))) @ root.T
        return drawn


def chances_below(limit: float, model: GaussianProcess, x: Array) -> Array:
    """The probability of a value below the limit at each row."""
    mean, deviation = model.predict(x)
    return normal_distribution((limit - mean) / deviation)


def normal_distribution(z: Array) -> Array:
    """P(Z < z) of a standard normal Z."""
    import numpy as np

    return np.array([0.5 * math.erfc(value) for value in (-z / math.sqrt(2)).tolist()])


def log_likelihoods(x: Array, y: Array) -> list[tuple[float, Scales]]:
    """The scales of a grid, with the best variance for each, and the log likelihood of `y` but for a constant."""
    import numpy as np

    among = distances(x, x)
    grid: list[tuple[float, Scales]] = []
    for length in SEARCH.lengths:
        values, vectors = np.linalg.eigh(correlation(among, length))
        squares = np.square(vectors.T @ y)
        for noise in SEARCH.noises:
            spectrum = np.maximum(values, 0.0) + noise
            fit = float((squares / spectrum).sum())
            variance = min(SEARCH.largest_variance, max(1 / SEARCH.largest_variance, fit / len(y)))
            likelihood = -0.5 * (fit / variance + len(y) * math.log(variance) + float(np.log(spectrum).sum()))
            grid.append((likelihood, Scales(length, noise, variance)))
    return grid


def correlation(distances: Array, length: float) -> Array:
    """The Matern 5/2 kernel at some distances."""
    import numpy as np

    scaled = math.sqrt(5.0) / length * distances
    values: Array = (1.0 + scaled + np.square(scaled) / 3.0) * np.exp(-scaled)
    return values


def distances(a: Array, b: Array) -> Array:
    """Euclidean distances of all rows of `a` from all rows of `b`."""
    import numpy as np

    squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2.0 * a @ b.T
    roots: Array = np.sqrt(np.maximum(squares, 0.0))
    return roots
