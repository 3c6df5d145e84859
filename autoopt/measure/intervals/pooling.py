"""Pool all measurements of several candidates: a hierarchical model of log ratios, and draws from its posterior.

A measurement h of candidate i gives y = m_i + u_h + w_hi + e_hi. m_i is the candidate's log ratio; u_h is what the
state of the machine and the source's own error add to all candidates that were measured in turns; w_hi is how that
state and the process meet this candidate; e_hi is the error within the measurement, whose size its interval says. A
measurement on one thread instead of several has a further error that is the same each time, and most of it is the same
for all candidates. The scales of u and w are not known: the posterior averages over a grid of them, weighted by their
likelihood and by a half-Cauchy prior (Gelman, Bayesian Analysis 1, 2006). So two measurements that agree by chance do
not pass for certainty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoopt.metrics import Estimate
from autoopt.tuning import TIMING

SCALES: Final = (0.001, 0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.2)
"""Standard deviations of u and w on the grid, in logarithms."""


@dataclass(frozen=True)
class Observation:
    """One measurement of one candidate."""

    candidate: str
    measurement: str
    """The same for candidates that were measured in turns."""
    log: float
    """Logarithm of the measured value."""
    deviation: float
    """Its standard deviation within the measurement."""
    shared_variance: float = 0.0
    """The part of its variance that all candidates of the measurement share."""
    bias: float = 0.0
    """Standard deviation of an error that all observations of this candidate with a bias share; the candidates have the
    share `TIMING.common` of its variance in common."""


@dataclass(frozen=True)
class Pooled:
    """Draws from the posterior of the candidates' logarithms."""

    candidates: tuple[str, ...]
    means: np.ndarray
    """[candidates]"""
    draws: np.ndarray
    """[TIMING.posterior_draws, candidates]"""

    def mean(self, candidate: str) -> float:
        """Return the mean of one candidate."""
        return float(self.means[self.candidates.index(candidate)])

    def of(self, candidate: str) -> np.ndarray:
        """Return the draws of one candidate."""
        return np.asarray(self.draws[:, self.candidates.index(candidate)])

    def estimate(self, candidate: str, beyond: float = 0.0) -> Estimate:
        """Summarize a candidate's ratio: the mean logarithm and the central 95 %.

        `beyond` is the half-width, in logarithms, of an independent error that is added to the interval.
        """
        middle = self.mean(candidate)
        low, high = np.quantile(self.of(candidate), [0.025, 0.975])
        down, up = math.hypot(max(0.0, middle - low), beyond), math.hypot(max(0.0, high - middle), beyond)
        return Estimate(math.exp(middle), math.exp(middle - down), math.exp(middle + up))


def observation(candidate: str, measurement: str, value: Estimate, shared_variance: float = 0.0) -> Observation:
    """Read one measurement from the estimate of a positive value."""
    return Observation(candidate, measurement, math.log(value.value), value.log_deviation, shared_variance)


def pool(observations: Sequence[Observation], usual: float = TIMING.usual_scale, seed: int = 0) -> Pooled:
    """Pool the observations of one or more candidates.

    `usual` is the scale of the prior of u and w: larger if the machine is known to have changed its pace.
    """
    data = _Data.of(observations)
    # One scale of u at a time: many observations would make the arrays of all pairs large.
    posteriors = [data.posteriors(scale, np.array(SCALES)) for scale in SCALES]
    means = np.concatenate([posterior.means for posterior in posteriors])
    roots = np.concatenate([posterior.roots for posterior in posteriors])
    # A half-Cauchy density on a logarithmic grid, up to a constant.
    priors = np.array([math.log(scale) - math.log1p((scale / usual) ** 2) for scale in SCALES])
    scores = np.concatenate([posterior.log_likelihoods for posterior in posteriors])
    scores += (priors[:, None] + priors).ravel()
    weights = np.exp(scores - scores.max())
    weights = weights / weights.sum()
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(TIMING.posterior_draws, weights)
    draws = rng.standard_normal((TIMING.posterior_draws, len(data.candidates)))
    first = 0
    for mean, root, count in zip(means, roots, counts.tolist(), strict=True):
        rows = slice(first, first + count)
        draws[rows] = mean + draws[rows] @ root.T
        first += count
    return Pooled(data.candidates, weights @ means, draws)


@dataclass(frozen=True)
class _Posteriors:
    """The normal posteriors of the candidates' logarithms for several pairs of scales."""

    means: np.ndarray
    """[scales, candidates]"""
    roots: np.ndarray
    """[scales, candidates, candidates]: Cholesky factors of the covariances."""
    log_likelihoods: np.ndarray
    """[scales], up to a constant"""


@dataclass(frozen=True)
class _Data:
    """The observations as arrays."""

    candidates: tuple[str, ...]
    logs: np.ndarray
    design: np.ndarray
    """[observations, candidates]: 1 for the candidate of the observation."""
    unshared: np.ndarray
    """Variance of each observation that it does not share."""
    shared: np.ndarray
    """[observations, observations]: covariance of observations of one measurement, and of biases."""
    same: np.ndarray
    """[observations, observations]: 1 for observations of one measurement."""

    @staticmethod
    def of(observations: Sequence[Observation]) -> _Data:
        candidates = tuple(dict.fromkeys(item.candidate for item in observations))
        columns = np.array([candidates.index(item.candidate) for item in observations])
        measurements = np.array([item.measurement for item in observations])
        errors = np.array([item.deviation**2 for item in observations])
        shared = np.minimum([item.shared_variance for item in observations], errors)
        same = (measurements[:, None] == measurements).astype(np.float64)
        biases = np.array([item.bias for item in observations])
        own = (1 - TIMING.common) * np.outer(biases, biases) * (columns[:, None] == columns)
        bias = own + TIMING.common * np.minimum.outer(biases, biases) ** 2
        return _Data(
            candidates,
            logs=np.array([item.log for item in observations]),
            design=np.eye(len(candidates))[columns],
            unshared=errors - shared,
            shared=same * np.sqrt(np.outer(shared, shared)) + bias,
            same=same,
        )

    def posteriors(self, together_scale: float, own_scales: np.ndarray) -> _Posteriors:
        """Compute the posteriors for a standard deviation of u and each of several of w."""
        diagonal = np.arange(len(self.logs))
        noise = np.tile(self.shared + self.same * together_scale**2, (len(own_scales), 1, 1))
        noise[:, diagonal, diagonal] += self.unshared + own_scales[:, None] ** 2
        centre = float(self.logs.mean())
        residual = self.logs - centre
        sides = np.column_stack([self.design, residual])
        weighted = np.linalg.solve(noise, np.broadcast_to(sides, (len(own_scales), *sides.shape)))
        weighted_design, weighted_residual = weighted[:, :, :-1], weighted[:, :, -1]
        covariance = np.linalg.inv(
            self.design.T @ weighted_design + np.eye(len(self.candidates)) / TIMING.wide_prior**2
        )
        projected = weighted_residual @ self.design
        shifts = (covariance @ projected[:, :, None])[:, :, 0]
        roots = np.linalg.cholesky(covariance)
        # The likelihood of the logarithms, whose covariance is noise + wide_prior**2 * design @ design.T, by the
        # Woodbury identity: a third of the time, because only the noise is factored.
        log_determinants = _half_log_determinant(np.linalg.cholesky(noise)) - _half_log_determinant(roots)
        distances = weighted_residual @ residual - (projected * shifts).sum(axis=1)
        return _Posteriors(centre + shifts, roots, -log_determinants - 0.5 * distances)


def _half_log_determinant(roots: np.ndarray) -> np.ndarray:
    """Compute half the logarithms of the determinants of matrices from their Cholesky factors."""
    return np.asarray(np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1))
