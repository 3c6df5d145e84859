"""The probability that a trial succeeds and that its result keeps the constraints."""

from __future__ import annotations

import math
from typing import Final

from autoopt.search.surrogates.gaussian_process import (
    Array,
    GaussianProcess,
    Scales,
    chances_below,
    correlation,
    distances,
)
from autoopt.search.surrogates.observations import Observations, Standardization
from autoopt.tuning import SEARCH

LABEL_SCALES: Final = Scales(length=2.0, noise=0.1)
"""Of the model of labels 0 and 1, which are too few to find the most likely scales. Averaged by likelihood: M with
30 % failures 24.5 -> 20.8 evaluations, synthetic tables 3.4 +- 2.8 % later, recorded ones 0.4 +- 0.8 % sooner."""


def log_feasible(observations: Observations, candidates: Array) -> Array:
    """Estimate log P(feasible) of each candidate; 0 as long as nothing failed and nothing was infeasible.

    A trial must not fail, and its result must keep the constraints. Where it is known by how much the constraints are
    broken, the mean of two models counts: one learns that, which is sharper near the limit, and one only that they are
    broken, which needs fewer observations.
    """
    import numpy as np

    x, labels = observations.x, observations.feasible
    success = np.ones(len(candidates))
    if observations.failed is not None:
        succeeded = np.where(np.isnan(labels), np.nan, 1 - observations.failed)
        success = _probability_of_success(x, succeeded, candidates)
        labels = np.where(observations.failed == 1, np.nan, labels)
    within = _probability(x, labels, candidates)
    if observations.violation is not None:
        known = np.isfinite(observations.violation)
        scale = Standardization.of(observations.violation[known])
        model = GaussianProcess()
        model.fit(x[known], scale.standardized(observations.violation[known]))
        below = chances_below(-scale.mean / scale.unit, model, candidates)
        within = (within + np.clip(below, SEARCH.least_doubt, 1 - SEARCH.least_doubt)) / 2
    return np.log(success * within)


def _probability_of_success(x: Array, labels: Array, candidates: Array) -> Array:
    """The probability of label 1 at each candidate, from labels 0, 1 and NaN; 1 as long as there is no 0.

    Some failures follow a rule, such as an operator that a pass cannot handle, and their neighbours fail too. Others
    come at random and say nothing about neighbours. The scales are averaged by their likelihood, so the labels tell.
    """
    import numpy as np

    finished = np.isfinite(labels)
    known = labels[finished]
    if known.all():
        return np.ones(len(candidates))
    base = float(known.sum() + 1) / (len(known) + 2)
    deviation = math.sqrt(base * (1 - base))
    mean = base + deviation * _averaged_mean(x[finished], (known - base) / deviation, candidates)
    return np.clip(mean, SEARCH.least_doubt, 1 - SEARCH.least_doubt)


def _averaged_mean(x: Array, y: Array, candidates: Array) -> Array:
    """The mean of Gaussian processes of total variance 1 that learned `y`, over their scales by likelihood."""
    import numpy as np

    among, across = distances(x, x), distances(candidates, x)
    likelihoods: list[float] = []
    coefficients: list[Array] = []
    for length in SEARCH.failure_lengths:
        values, vectors = np.linalg.eigh(correlation(among, length))
        projected = vectors.T @ y
        for noise in SEARCH.failure_noises:
            spectrum = np.maximum(values, 0.0) + noise
            variance = spectrum / (1 + noise)
            likelihoods.append(-0.5 * float((projected**2 / variance + np.log(variance)).sum()))
            coefficients.append(vectors @ (projected / spectrum))
    weights = np.exp(np.array(likelihoods) - max(likelihoods))
    weighted = (weights / weights.sum())[:, None] * np.array(coefficients)
    mean = np.zeros(len(candidates))
    for length, of_noises in zip(SEARCH.failure_lengths, np.split(weighted, len(SEARCH.failure_lengths)), strict=True):
        mean += correlation(across, length) @ of_noises.sum(axis=0)
    return mean


def _probability(x: Array, labels: Array, candidates: Array) -> Array:
    """The probability of label 1 at each candidate, from labels 0, 1 and NaN; 1 as long as there is no 0."""
    import numpy as np

    finished = np.isfinite(labels)
    known = labels[finished]
    if known.all():
        return np.ones(len(candidates))
    base = float(known.sum() + 1) / (len(known) + 2)
    model = GaussianProcess(scales=LABEL_SCALES)
    model.fit(x[finished], known - base)
    mean, _ = model.predict(candidates)
    probability: Array = np.clip(mean + base, SEARCH.least_doubt, 1 - SEARCH.least_doubt)
    return probability
