"""Models of what a point will give, and what to try by them: scikit-learn's Gaussian process and random forest."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.float64]"

Kind: TypeAlias = Literal["gp", "rf"]
TREES = 32
LEARNT = 300
STEPS = 8
"""Steps towards the likeliest scales of a Gaussian process; more cost time and find nothing better to try."""
LEAST, MOST = 0.02, 0.98
"""No point is held to be feasible, or infeasible, with more certainty than this."""


@dataclass(frozen=True)
class Observations:
    """What is known of the asked points.

    `x`: their rows. `loss`: to be minimised, NaN where it is not known. `feasible`: 1 or 0, NaN while running.
    """

    x: Array
    loss: Array
    feasible: Array


@dataclass(frozen=True)
class Acquisition:
    """Of each candidate: log of the expected improvement, in the loss's unit, and of P(feasible)."""

    log_improvement: Array
    log_feasible: Array

    @property
    def score(self) -> Array:
        return self.log_improvement + self.log_feasible


class Model(Protocol):
    """A regression with a measure of its own uncertainty."""

    def fit(self, x: Array, y: Array) -> None:
        """Learn `y`, which is about standardised. A second call keeps what was learnt about scales."""

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and standard deviation at each row."""


class GaussianProcess:
    """Matern 5/2 with noise. The scales are the likeliest ones, found once, unless they are to be kept as they are."""

    def __init__(self, *, noise: float = 0.01, keep: bool = False) -> None:
        self._noise = noise
        self._keep = keep
        self._kernel: Any = None
        self._model: Any = None

    def fit(self, x: Array, y: Array) -> None:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        likeliest = None if self._keep else _short_search
        if self._kernel is None:
            self._kernel = ConstantKernel(1.0, (0.05, 20.0)) * Matern(2.0, (0.3, 30.0), nu=2.5)
            self._kernel += WhiteKernel(self._noise, (1e-4, 0.3))
        self._model = GaussianProcessRegressor(self._kernel, alpha=1e-8, optimizer=likeliest)
        self._model.fit(x, y)
        self._kernel, self._keep = self._model.kernel_, True

    def predict(self, x: Array) -> tuple[Array, Array]:
        import numpy as np

        mean, spread = self._model.predict(x, return_std=True)
        noise = self._kernel.k2.noise_level
        return mean, np.sqrt(np.maximum(spread**2 - noise, 1e-10))


def _short_search(objective: Any, start: Array, bounds: Array) -> tuple[Array, float]:
    """The likeliest scales, as near as a few steps lead."""
    from scipy.optimize import minimize

    found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": STEPS})
    return found.x, found.fun


class Forest:
    """Random forest; its uncertainty is how far the trees disagree."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._model: Any = None

    def fit(self, x: Array, y: Array) -> None:
        from sklearn.ensemble import RandomForestRegressor

        self._model = RandomForestRegressor(TREES, max_features=0.6, min_samples_leaf=1, random_state=self._seed)
        self._model.fit(x, y)

    def predict(self, x: Array) -> tuple[Array, Array]:
        import numpy as np

        narrow = np.asarray(x, dtype=np.float32)
        each = np.stack([tree.tree_.predict(narrow)[:, 0] for tree in self._model.estimators_])
        return each.mean(axis=0), np.maximum(each.std(axis=0), 0.03)


def make_model(kind: Kind, seed: int) -> Model:
    return GaussianProcess() if kind == "gp" else Forest(seed)


def promise(known: Observations, candidates: Array, kind: Kind, seed: int) -> Acquisition:
    """What each candidate promises: the improvement over the best feasible loss that is expected, and P(feasible).

    A running point is believed to give what the model predicts of it (kriging believer). Before anything feasible is
    known, improvement is over the best loss of all.
    """
    import sklearn

    checks = sklearn.config_context(assume_finite=True, skip_parameter_validation=True)
    with checks, _threads().limit(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a scale at its bound is no news
        return _promise(known, candidates, kind, seed)


@lru_cache
def _threads() -> Any:
    """Limits the threads of linear algebra: on matrices this small more of them only disturb what is being measured."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _promise(known: Observations, candidates: Array, kind: Kind, seed: int) -> Acquisition:
    import numpy as np

    known = _most_telling(known)
    certain = log_feasible(known, candidates)
    given = np.isfinite(known.loss)
    if given.sum() < 2:
        return Acquisition(np.zeros(len(candidates)), certain)
    x, y = known.x[given], known.loss[given]
    shift, scale = float(y.mean()), float(y.std()) or 1.0
    y = (y - shift) / scale
    model = make_model(kind, seed)
    model.fit(x, y)
    good = known.feasible[given] == 1
    best = float(y[good].min() if good.any() else y.min())
    running = np.isnan(known.feasible)
    if running.any():
        believed, _ = model.predict(known.x[running])
        model.fit(np.vstack([x, known.x[running]]), np.append(y, believed))
        best = min(best, float(believed.min()))
    mean, spread = model.predict(candidates)
    return Acquisition(log_expected_improvement(mean, spread, best) + math.log(scale), certain)


def _most_telling(known: Observations) -> Observations:
    """At most `LEARNT` points: half of them the best, half the latest; a model's cost grows with their cube."""
    import numpy as np

    if len(known.loss) <= LEARNT:
        return known
    rank = np.argsort(np.argsort(np.where(known.feasible == 1, np.nan_to_num(known.loss, nan=np.inf), np.inf)))
    latest = np.arange(len(rank))[::-1]
    keep = np.sort(np.argsort(np.minimum(rank, latest), kind="stable")[:LEARNT])
    return Observations(known.x[keep], known.loss[keep], known.feasible[keep])


def log_feasible(known: Observations, candidates: Array) -> Array:
    """log P(feasible) of each candidate; 0 while nothing was infeasible."""
    import numpy as np

    told = np.isfinite(known.feasible)
    labels = known.feasible[told]
    if not told.any() or labels.min() == 1:
        return np.zeros(len(candidates))
    base = (labels.sum() + 1) / (len(labels) + 2)
    model = GaussianProcess(noise=0.1, keep=True)
    model.fit(known.x[told], labels - base)
    mean, _ = model.predict(candidates)
    return np.asarray(np.log(np.clip(mean + base, LEAST, MOST)))


def log_expected_improvement(mean: Array, spread: Array, best: float) -> Array:
    """log E[max(0, best - Y)] of Y ~ N(mean, spread^2), finite also where it is as good as nothing."""
    import numpy as np
    from scipy.special import log_ndtr, ndtr

    z = (best - mean) / spread
    density = np.exp(-0.5 * np.minimum(z * z, 1400.0)) / math.sqrt(2 * math.pi)
    near = np.log(np.maximum(density + z * ndtr(z), 1e-300))
    far = log_ndtr(z) - np.log(np.maximum(-z, 1.0))  # the density over z^2, and ndtr is the density over -z
    return np.asarray(np.where(z > -6, near, far) + np.log(spread))
