"""Regressions with uncertainty, by scikit-learn, and the expected improvement of candidates under them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import Kernel
    from threadpoolctl import ThreadpoolController

Array: TypeAlias = "NDArray[np.float64]"
Kind: TypeAlias = Literal["gp", "rf"]

TREES: Final = 32
MAX_OBSERVATIONS: Final = 300
"""Observations that a model learns from; its cost grows with their cube."""
DRAWS: Final = 256
"""Draws from a posterior."""
CONSIDERED: Final = 300
"""Points that may be the best of all; the others are too unlikely to matter."""
JITTER: Final = 1e-6
"""Variance that keeps a covariance positive definite."""
OPTIMIZER_STEPS: Final = 8
"""Steps towards the most likely scales of a Gaussian process; more cost time and suggest nothing better."""
MIN_CERTAINTY: Final = 0.02
MAX_CERTAINTY: Final = 0.98
"""Bounds of P(feasible)."""


@dataclass(frozen=True)
class Observations:
    """The asked points: rows `x`, `loss` to minimize (NaN without one), `feasible` (1 or 0, NaN while running)."""

    x: Array
    loss: Array
    feasible: Array
    violation: Array | None = None
    """By how much the constraints are broken, with 0 as the limit and NaN without a result; None if unknown."""

    def __getitem__(self, rows: Array) -> Observations:
        violation = None if self.violation is None else self.violation[rows]
        return Observations(self.x[rows], self.loss[rows], self.feasible[rows], violation)


@dataclass(frozen=True)
class Expected:
    """Of each candidate the log of the expected improvement, in units of the loss, and the log of P(feasible)."""

    log_improvement: Array
    log_feasible: Array

    @property
    def score(self) -> Array:
        """Log of expected improvement times P(feasible)."""
        return self.log_improvement + self.log_feasible


class Model(Protocol):
    """A regression that knows how uncertain it is."""

    def fit(self, x: Array, y: Array) -> None:
        """Learn `y`, which is about standardised. A second call keeps the scales of the first."""

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation at each row."""


class GaussianProcess:
    """A Gaussian process with a Matern 5/2 kernel and noise.

    The first `fit` finds the most likely scales, unless `fixed_scales` keeps the initial ones.
    """

    def __init__(self, *, noise: float = 0.01, fixed_scales: bool = False) -> None:
        self._noise = noise
        self._fixed_scales = fixed_scales
        self._kernel: Kernel | None = None
        self._model: GaussianProcessRegressor | None = None

    def fit(self, x: Array, y: Array) -> None:
        """Learn `y` at the rows `x`."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        optimizer = None if self._fixed_scales else _optimize
        if self._kernel is None:
            self._kernel = ConstantKernel(1.0, (0.05, 20.0)) * Matern(2.0, (0.3, 30.0), nu=2.5)
            self._kernel += WhiteKernel(self._noise, (1e-4, 0.3))
        self._model = GaussianProcessRegressor(self._kernel, alpha=1e-8, optimizer=optimizer)
        self._model.fit(x, y)
        self._kernel = self._model.kernel_
        self._fixed_scales = True

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation, without the noise of a measurement, at each row."""
        import numpy as np

        assert self._model is not None
        assert self._kernel is not None
        mean, deviation = self._model.predict(x, return_std=True)
        noise = self._kernel.k2.noise_level
        return mean, np.sqrt(np.maximum(deviation**2 - noise, 1e-10))

    def draw(self, x: Array, count: int, seed: int) -> Array:
        """Draw values, without the noise of a measurement, at all rows together: [count, rows]."""
        import numpy as np

        assert self._model is not None
        assert self._kernel is not None
        mean, covariance = self._model.predict(x, return_cov=True)
        covariance[np.diag_indices_from(covariance)] += JITTER - self._kernel.k2.noise_level
        root = np.linalg.cholesky(covariance)
        drawn: Array = mean + np.random.default_rng(seed).standard_normal((count, len(x))) @ root.T
        return drawn


class Forest:
    """A random forest; its uncertainty is the disagreement of its trees."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._model: RandomForestRegressor | None = None

    def fit(self, x: Array, y: Array) -> None:
        """Learn `y` at the rows `x`."""
        from sklearn.ensemble import RandomForestRegressor

        self._model = RandomForestRegressor(TREES, max_features=0.6, min_samples_leaf=1, random_state=self._seed)
        self._model.fit(x, y)

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of the trees at each row."""
        import numpy as np

        assert self._model is not None
        # Straight from the trees: scikit-learn's own predict checks the input once for each of them.
        narrow = np.asarray(x, dtype=np.float32)
        of_trees = np.stack([tree.tree_.predict(narrow)[:, 0] for tree in self._model.estimators_])
        return of_trees.mean(axis=0), np.maximum(of_trees.std(axis=0), 0.03)


@contextmanager
def _plain_sklearn() -> Iterator[None]:
    """Run scikit-learn without its checks, warnings and threads."""
    import sklearn

    checks = sklearn.config_context(assume_finite=True, skip_parameter_validation=True)
    # One thread: on matrices this small more of them only disturb measurements on other cores.
    with checks, _thread_pools().limit(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of a scale at its bound
        yield


@lru_cache
def _thread_pools() -> ThreadpoolController:
    """Find the thread pools of the numeric libraries, once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@_plain_sklearn()
def expect(observations: Observations, candidates: Array, kind: Kind, seed: int) -> Expected:
    """Compute expected improvement over the best feasible loss, and P(feasible), of each candidate.

    A running point counts as what the model predicts of it (kriging believer). Before anything feasible is known,
    improvement is over the best loss of all.
    """
    import numpy as np

    observations = _most_informative(observations)
    certainty = log_feasible(observations, candidates)
    measured = observations[np.isfinite(observations.loss)]
    if len(measured.loss) < 2:
        return Expected(np.zeros(len(candidates)), certainty)
    scale = Standardization.of(measured.loss)
    y = scale.standardized(measured.loss)
    model: Model = GaussianProcess() if kind == "gp" else Forest(seed)
    model.fit(measured.x, y)
    best = float(_feasible_first(y, measured.feasible == 1).min())
    running = observations.x[np.isnan(observations.feasible)]
    if len(running):
        believed, _ = model.predict(running)
        model.fit(np.vstack([measured.x, running]), np.append(y, believed))
        best = min(best, float(believed.min()))
    mean, deviation = model.predict(candidates)
    return Expected(log_expected_improvement(mean, deviation, best) + math.log(scale.unit), certainty)


@_plain_sklearn()
def chance_of_gain(observations: Observations, candidates: Array, gain: float, seed: int) -> float:
    """Estimate the chance that any candidate is feasible and better than all feasible observations by `gain`.

    All of them are drawn together from a Gaussian process, because points that have much in common are good or bad
    together. For the same reason one number decides in each draw which candidates are feasible.
    """
    import numpy as np

    observations = _most_informative(observations)
    measured = observations[np.isfinite(observations.loss)]
    allowed = measured[measured.feasible == 1]
    if len(allowed.loss) < 2:
        return 1.0
    scale = Standardization.of(measured.loss)
    limit = gain / scale.unit
    model = GaussianProcess()
    model.fit(measured.x, scale.standardized(measured.loss))
    certainty = np.exp(log_feasible(observations, candidates))
    needed = float(scale.standardized(allowed.loss).min()) - limit
    likely = np.argsort(-_chances_below(needed, model, candidates) * certainty, kind="stable")[:CONSIDERED]
    drawn = model.draw(np.vstack([allowed.x, candidates[likely]]), DRAWS, seed)
    known, others = np.split(drawn, [len(allowed.loss)], axis=1)
    is_feasible = np.random.default_rng(seed + 1).random((DRAWS, 1)) < certainty[likely]
    best = np.where(is_feasible, others, np.inf).min(axis=1)
    return float((best < known.min(axis=1) - limit).mean())


def _chances_below(limit: float, model: Model, x: Array) -> Array:
    """The probability of a value below the limit at each row."""
    import numpy as np
    from scipy.special import ndtr

    mean, deviation = model.predict(x)
    return np.asarray(ndtr((limit - mean) / deviation))


@dataclass(frozen=True)
class Standardization:
    """Mean and standard deviation of some values; a deviation of 0 counts as 1."""

    mean: float
    unit: float

    @staticmethod
    def of(values: Array) -> Standardization:
        return Standardization(float(values.mean()), float(values.std()) or 1.0)

    def standardized(self, values: Array) -> Array:
        """The values in units of the deviation from the mean."""
        return (values - self.mean) / self.unit


def _feasible_first(y: Array, feasible: Array) -> Array:
    """The losses of the feasible points; all of them if none is."""
    return y[feasible] if feasible.any() else y


def _most_informative(observations: Observations) -> Observations:
    """Keep at most `MAX_OBSERVATIONS` points: half of them the best, half the latest."""
    import numpy as np

    if len(observations.loss) <= MAX_OBSERVATIONS:
        return observations
    loss = np.where(observations.feasible == 1, np.nan_to_num(observations.loss, nan=np.inf), np.inf)
    rank = np.argsort(np.argsort(loss))
    age = np.arange(len(rank))[::-1]
    return observations[np.sort(np.argsort(np.minimum(rank, age), kind="stable")[:MAX_OBSERVATIONS])]


def log_feasible(observations: Observations, candidates: Array) -> Array:
    """Estimate log P(feasible) of each candidate; 0 as long as nothing was infeasible.

    Where it is known by how much the constraints are broken, the mean of two models counts: one learns that, which is
    sharper near the limit, and one only that they are broken, which needs fewer observations.
    """
    import numpy as np

    labels = observations.feasible
    probability = _probability(observations.x, labels, candidates)
    if observations.violation is None:
        return np.log(probability)
    succeeded = np.where(np.isnan(labels), np.nan, np.isfinite(observations.violation))
    graded = _probability(observations.x, succeeded, candidates)
    graded *= _probability_within(observations.x, observations.violation, candidates)
    return np.log((probability + graded) / 2)


def _probability(x: Array, labels: Array, candidates: Array) -> Array:
    """The probability of label 1 at each candidate, from labels 0, 1 and NaN; 1 as long as there is no 0."""
    import numpy as np

    finished = np.isfinite(labels)
    known = labels[finished]
    if known.all():
        return np.ones(len(candidates))
    base = float(known.sum() + 1) / (len(known) + 2)
    model = GaussianProcess(noise=0.1, fixed_scales=True)
    model.fit(x[finished], known - base)
    mean, _ = model.predict(candidates)
    probability: Array = np.clip(mean + base, MIN_CERTAINTY, MAX_CERTAINTY)
    return probability


def _probability_within(x: Array, violation: Array, candidates: Array) -> Array:
    """The probability of a violation below 0 at each candidate, from violations that may be NaN."""
    import numpy as np

    known = np.isfinite(violation)
    scale = Standardization.of(violation[known])
    model = GaussianProcess()
    model.fit(x[known], scale.standardized(violation[known]))
    chances = _chances_below(-scale.mean / scale.unit, model, candidates)
    return np.clip(chances, MIN_CERTAINTY, MAX_CERTAINTY)


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Compute log E[max(0, best - Y)] of Y ~ N(mean, deviation^2), finite also where it is almost 0."""
    import numpy as np
    from scipy.special import log_ndtr, ndtr

    z = (best - mean) / deviation
    density = np.exp(-0.5 * np.minimum(z * z, 1400.0)) / math.sqrt(2 * math.pi)
    near = np.log(np.maximum(density + z * ndtr(z), 1e-300))
    far = log_ndtr(z) - np.log(np.maximum(-z, 1.0))  # about density / z^2, and ndtr(z) is about density / -z
    return np.asarray(np.where(z > -6, near, far) + np.log(deviation))


def _optimize(objective: Callable[[Array], tuple[float, Array]], start: Array, bounds: Array) -> tuple[Array, float]:
    """Approach the most likely scales in a few steps."""
    from scipy.optimize import minimize

    result = minimize(
        objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": OPTIMIZER_STEPS}
    )
    return result.x, result.fun
