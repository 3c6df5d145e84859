"""Expectations of a Gaussian process about candidates: improvement, feasibility, and the chance of any gain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from autoopt.search.surrogates.feasibility import log_feasible
from autoopt.search.surrogates.gaussian_process import (
    Array,
    GaussianProcess,
    Scales,
    chances_below,
    log_likelihoods,
    normal_distribution,
)
from autoopt.search.surrogates.observations import Observations, Standardization
from autoopt.tuning import SEARCH

if TYPE_CHECKING:
    import numpy as np
    from threadpoolctl import ThreadpoolController


@dataclass(frozen=True)
class Expected:
    """Of each candidate the log of the expected improvement, in units of the loss, and the log of P(feasible)."""

    log_improvement: Array
    log_feasible: Array
    log_doubtful: Array
    """The expected improvement again, for a process that is less certain than it says."""

    @property
    def score(self) -> Array:
        """Log of expected improvement times P(feasible)."""
        return self.log_improvement + self.log_feasible

    @property
    def doubtful_score(self) -> Array:
        """The score again, for a process that is less certain than it says."""
        return self.log_doubtful + self.log_feasible


@dataclass(frozen=True)
class LossView:
    """The observations of a search with one objective."""

    observations: Observations
    gained: ClassVar[str] = ""

    def expect(self, candidates: Array, doubt: float) -> Expected:
        """See `expect`."""
        return expect(self.observations, candidates, doubt)

    def possible_gains(self, candidates: Array, expected: Expected, seed: int) -> PossibleGains:
        """See `possible_gains`."""
        return possible_gains(self.observations, candidates, seed)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep numpy to one thread: on matrices this small more of them only disturb measurements on other cores."""
    with _thread_pools().limit(limits=1):
        yield


@lru_cache
def _thread_pools() -> ThreadpoolController:
    """Find the thread pools of the numeric libraries, once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@one_thread()
def expect(observations: Observations, candidates: Array, doubt: float = 1.0) -> Expected:
    """Compute expected improvement over the best feasible loss, and P(feasible), of each candidate.

    A running point counts as what the model predicts of it (kriging believer). Before anything feasible is known,
    improvement is over the best loss of all. `doubt` is a factor on the deviations of the process for
    `Expected.doubtful_score`.
    """
    import numpy as np

    observations = _most_informative(observations)
    certainty = log_feasible(observations, candidates)
    measured = observations[np.isfinite(observations.loss)]
    if len(measured.loss) < 2:
        return Expected(np.zeros(len(candidates)), certainty, np.zeros(len(candidates)))
    scale = Standardization.of(measured.loss)
    y = scale.standardized(measured.loss)
    model = GaussianProcess()
    model.fit(measured.x, y)
    is_feasible = measured.feasible == 1
    best = float(y[is_feasible].min() if is_feasible.any() else y.min())
    running = observations.x[np.isnan(observations.feasible)]
    if len(running):
        believed, _ = model.predict(running)
        model.fit(np.vstack([measured.x, running]), np.append(y, believed))
        best = min(best, float(believed.min()))
    mean, deviation = model.predict(candidates)
    improvement = log_expected_improvement(mean, deviation, best) + math.log(scale.unit)
    doubtful = improvement
    if doubt != 1.0:
        doubtful = log_expected_improvement(mean, doubt * deviation, best) + math.log(scale.unit)
    return Expected(improvement, certainty, doubtful)


@dataclass(frozen=True)
class PossibleGains:
    """Draws of the gain that is left, and what one observation can show."""

    drawn: Array
    """Differences of losses; `SEARCH.draws` of them, none as long as too little is known."""
    noise: float
    """Standard deviation of an observed loss from the process, which is 0 as long as too little is known."""


@one_thread()
def possible_gains(observations: Observations, candidates: Array, seed: int) -> PossibleGains:
    """Draw by how much the best of the candidates is better than all feasible observations; 0 where it is not.

    All of them are drawn together from a Gaussian process, because points that have much in common are good or bad
    together. For the same reason one number decides in each draw which candidates are feasible. The scales of the
    process are drawn too, by their likelihood: the most likely ones alone are too certain.
    """
    import numpy as np

    observations = _most_informative(observations)
    measured = observations[np.isfinite(observations.loss)]
    allowed = measured.feasible == 1
    if allowed.sum() < 2:
        return PossibleGains(np.array([]), 0.0)
    standardization = Standardization.of(measured.loss)
    y = standardization.standardized(measured.loss)
    certainty = np.exp(log_feasible(observations, candidates))
    rng = np.random.default_rng(seed)
    gains: list[Array] = []
    noises: list[float] = []
    for scales in drawn_scales(measured, y, rng):
        noises.append(scales.noise * scales.variance)
        model = GaussianProcess(scales)
        model.fit(measured.x, y)
        likely = np.argsort(-chances_below(y[allowed].min(), model, candidates) * certainty, kind="stable")[
            : SEARCH.considered
        ]
        gains.append(_drawn_gains(model, measured.x[allowed], candidates[likely], certainty[likely], rng))
    unit = standardization.unit
    return PossibleGains(unit * np.concatenate(gains), unit * math.sqrt(float(np.mean(noises))))


def _drawn_gains(
    model: GaussianProcess, known: Array, candidates: Array, certainty: Array, rng: np.random.Generator
) -> Array:
    """Draw by how much the lowest value of the candidates that are feasible is below those of the known points."""
    import numpy as np

    drawn = model.draw(np.vstack([known, candidates]), SEARCH.draws // SEARCH.scales, rng)
    of_known, of_candidates = np.split(drawn, [len(known)], axis=1)
    is_feasible = rng.random((len(drawn), 1)) < certainty
    lowest = np.where(is_feasible, of_candidates, np.inf).min(axis=1)
    gains: Array = np.maximum(0.0, of_known.min(axis=1) - lowest)
    return gains


def drawn_scales(measured: Observations, y: Array, rng: np.random.Generator) -> list[Scales]:
    """Scales of a Gaussian process, drawn by the likelihood of `y`."""
    import numpy as np

    likelihoods, grid = zip(*log_likelihoods(measured.x, y), strict=True)
    weights = np.exp(np.array(likelihoods) - max(likelihoods))
    return [grid[place] for place in rng.choice(len(grid), SEARCH.scales, p=weights / weights.sum())]


def _most_informative(observations: Observations) -> Observations:
    """Keep at most `SEARCH.max_observations` points: half of them the best, half the latest."""
    import numpy as np

    if len(observations.loss) <= SEARCH.max_observations:
        return observations
    loss = np.where(observations.feasible == 1, np.nan_to_num(observations.loss, nan=np.inf), np.inf)
    rank = np.argsort(np.argsort(loss))
    age = np.arange(len(rank))[::-1]
    return observations[np.sort(np.argsort(np.minimum(rank, age), kind="stable")[: SEARCH.max_observations])]


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Compute log E[max(0, best - Y)] of Y ~ N(mean, deviation^2), finite also where it is almost 0."""
    import numpy as np

    z = (best - mean) / deviation
    log_density = -0.5 * np.square(z) - 0.5 * math.log(2 * math.pi)
    near = np.log(np.maximum(np.exp(log_density) + z * normal_distribution(z), 1e-300))
    far = log_density - 2 * np.log(np.maximum(-z, 1.0))  # the first term of the asymptotic series
    return np.asarray(np.where(z > -6, near, far) + np.log(deviation))
