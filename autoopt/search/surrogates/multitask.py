"""A Gaussian process over models and configurations: what measurements of other models say about a new one.

The covariance of two configurations on two models is that of the configurations times that of the models, part of which
all models have in common (E. V. Bonilla, K. M. A. Chai, C. K. I. Williams: Multi-task Gaussian Process Prediction,
2007; here the covariance of models follows from their features). Configurations covary by the passes and values that
they share. One without passes is the origin: the source model has the log ratio 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autoopt.search.surrogates.models import log_expected_improvement, one_thread
from autoopt.space import Value

Array: TypeAlias = NDArray[np.float64]
Configuration: TypeAlias = Mapping[str, Mapping[str, Value]]
"""Pass -> parameter -> value."""
Effect: TypeAlias = tuple[str, ...]
"""A pass, one of its values, or all of its values together."""

LOWEST: Final = -3.0
HIGHEST: Final = 1.5
"""Bounds of a log ratio that is learned from: how hopeless a configuration is does not matter."""
SURE: Final = 0.98
"""Bound of P(feasible)."""


@dataclass(frozen=True)
class Scales:
    """Standard deviations of effects, and over which distance of models these agree."""

    of_pass: float = 0.3
    of_value: float = 0.15
    of_point: float = 0.1
    noise: float = 0.3
    """Also what a sum of effects does not tell."""
    shared: float = 0.8
    """Share of the variance that all models have in common."""
    length: float = 0.7


RATIOS: Final = Scales()
"""Of log ratios."""
LABELS: Final = Scales(of_pass=0.35)
"""Of the label 1 of a configuration that fails or breaks a limit, against 0."""


@dataclass(frozen=True)
class TriedConfiguration:
    """A configuration that was tried on a model."""

    features: tuple[float, ...]
    """Of the model, on scales on which 1 is a great difference."""
    configuration: Configuration
    log_ratio: float | None
    """None if it was not measured."""
    rejected: bool
    """It failed or broke a limit."""
    weight: float = 1.0
    """Below 1 for a measurement that is less about the new case, such as one on another CPU."""


@dataclass(frozen=True)
class Expectation:
    """Results of some configurations on one model, as expected from other models."""

    means: Array
    """Of the log ratios."""
    covariance: Array
    chances: Array
    """P(feasible)."""

    def order(self, weights: Sequence[float], count: int) -> list[int]:
        """Indexes of the configurations to begin with, each as if those before gave what is expected of them.

        The next one has the highest expected improvement times P(feasible) times weight.
        """
        left = list(range(len(self.means)))
        covariance, best, chosen = self.covariance.copy(), 0.0, list[int]()
        while left and len(chosen) < count:
            deviations = np.sqrt(np.maximum(np.diag(covariance)[left], 1e-8))
            gains = np.exp(log_expected_improvement(self.means[left], deviations, best))
            gains *= self.chances[left] * np.array(weights)[left]
            index = left.pop(int(np.argmax(gains)))
            chosen.append(index)
            # An observation that equals the mean changes no mean.
            column = covariance[:, index]
            covariance = covariance - np.outer(column, column) / (column[index] + RATIOS.noise**2)
            if self.chances[index] > 0.5:
                best = min(best, float(self.means[index]))
        return chosen


class MultitaskProcess:
    """Expects log ratios and P(feasible) of configurations on a model from observations of others."""

    def __init__(self, observations: Sequence[TriedConfiguration]) -> None:
        self._observations = observations
        values: dict[tuple[str, str], set[str]] = {}
        for observation in observations:
            for name, parameters in observation.configuration.items():
                for key, value in parameters.items():
                    values.setdefault((name, key), set()).add(_text(value))
        self._varied = {parameter for parameter, texts in values.items() if len(texts) > 1}
        """Parameters whose values were compared; the others tell nothing."""
        self._columns: dict[Effect, int] = {}
        for observation in observations:
            for effect in self._effects(observation.configuration):
                self._columns.setdefault(effect, len(self._columns))

    def known_effects(self, configuration: Configuration) -> frozenset[Effect]:
        """The effects of a configuration that were observed: all that the expectation depends on."""
        return frozenset(effect for effect in self._effects(configuration) if effect in self._columns)

    @one_thread()
    def expect(self, features: tuple[float, ...], configurations: Sequence[Configuration]) -> Expectation:
        """Expect the results of configurations on a model with these features."""
        means, covariance = self.predict(features, configurations, RATIOS)
        risks, spread = self.predict(features, configurations, LABELS)
        chances = _chances_of_low(risks, np.sqrt(np.diag(spread) + LABELS.noise**2))
        return Expectation(means, covariance, chances)

    def predict(
        self, features: tuple[float, ...], configurations: Sequence[Configuration], scales: Scales
    ) -> tuple[Array, Array]:
        """Means and covariance of the log ratios with `RATIOS` or others, or of the labels with `LABELS`."""
        known: list[TriedConfiguration] = []
        values: list[float] = []
        for observation in self._observations:
            if scales is LABELS:
                known.append(observation)
                values.append(float(observation.rejected))
            elif observation.log_ratio is not None:
                known.append(observation)
                values.append(min(HIGHEST, max(LOWEST, observation.log_ratio)))
        new = self._matrix(configurations, scales)
        if not known:
            return np.zeros(len(configurations)), new @ new.T
        rows = self._matrix([observation.configuration for observation in known], scales)
        models = np.array([observation.features for observation in known]).reshape(len(known), -1)
        covariance = _alike(models, models, scales) * (rows @ rows.T)
        weights = np.array([observation.weight for observation in known])
        covariance[np.diag_indices_from(covariance)] += scales.noise**2 / weights
        across = _alike(np.array([features]), models, scales) * (new @ rows.T)
        solved = np.linalg.solve(covariance, np.column_stack([np.array(values), across.T]))
        return across @ solved[:, 0], new @ new.T - across @ solved[:, 1:]

    def _effects(self, configuration: Configuration) -> dict[Effect, str]:
        """The effects of a configuration, each with the name of its deviation in `Scales`."""
        effects: dict[Effect, str] = {}
        for name, parameters in configuration.items():
            effects[(name,)] = "of_pass"
            compared = {key: value for key, value in parameters.items() if (name, key) in self._varied}
            for key, value in compared.items():
                effects[name, key, _text(value)] = "of_value"
            if compared:
                effects[name, _text(compared)] = "of_point"
        return effects

    def _matrix(self, configurations: Sequence[Configuration], scales: Scales) -> Array:
        """A row for each configuration. Effects that were never observed are left out, because they promise nothing."""
        matrix = np.zeros((len(configurations), len(self._columns)))
        for row, configuration in enumerate(configurations):
            for effect, kind in self._effects(configuration).items():
                if effect in self._columns:
                    matrix[row, self._columns[effect]] = getattr(scales, kind)
        return matrix


def _alike(a: Array, b: Array, scales: Scales) -> Array:
    """The covariance of models."""
    squares = np.square(a[:, None, :] - b[None, :, :]).sum(axis=2)
    alike: Array = np.exp(-squares / (2 * scales.length**2))
    return scales.shared + (1 - scales.shared) * alike


def _chances_of_low(means: Array, deviations: Array) -> Array:
    """The probability of a label below 0.5."""
    chances: list[float] = []
    for mean, deviation in zip(means, deviations, strict=True):
        chance = 0.5 * (1 + math.erf((0.5 - mean) / (deviation * math.sqrt(2))))
        chances.append(min(SURE, max(1 - SURE, chance)))
    return np.array(chances)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)
