"""Effects of passes and of their values on the outcome of a trial, and what several sources say about them together.

An outcome, such as a log ratio, is taken as the sum of one effect for each factor of the trial: a pass, or a pass with
one value of a parameter. No effects, no change: the source model is the origin.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

PASS_DEVIATION: Final = 0.3
VALUE_DEVIATION: Final = 0.2
"""Standard deviations of the effects of a pass and of a value on a log ratio, before anything is measured."""
NOISE: Final = 0.05
"""Standard deviation of a log ratio from the sum of its effects."""
IGNORANCE: Final = 0.5
"""Weight of having no idea, against that of a source that is just like the new case."""


class Factor(NamedTuple):
    """A pass, or one value of its parameter."""

    pass_name: str
    parameter: str = ""
    value: str = ""
    """As JSON."""


@dataclass(frozen=True)
class Effect:
    """A normal distribution of an effect."""

    mean: float
    variance: float

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)


@dataclass(frozen=True)
class Scale:
    """The spread of effects on one kind of outcome."""

    of_pass: float = PASS_DEVIATION
    of_value: float = VALUE_DEVIATION
    noise: float = NOISE

    def prior(self, factor: Factor) -> float:
        """Standard deviation of a factor's effect before anything is measured."""
        return self.of_value if factor.parameter else self.of_pass


def estimated_effects(rows: Sequence[tuple[Collection[Factor], float]], scale: Scale) -> dict[Factor, Effect]:
    """The effects of all factors, from trials with their factors and outcomes, by Bayesian linear regression."""
    import numpy as np  # a run without lessons does without

    factors = sorted({factor for present, _ in rows for factor in present})
    if not factors:
        return {}
    columns = {factor: column for column, factor in enumerate(factors)}
    x = np.zeros((len(rows), len(factors)))
    for row, (present, _) in enumerate(rows):
        x[row, [columns[factor] for factor in present]] = 1
    prior = np.array(list(map(scale.prior, factors)))
    covariance = np.linalg.inv(x.T @ x / scale.noise**2 + np.diag(prior**-2))
    means = covariance @ x.T @ np.array([value for _, value in rows]) / scale.noise**2
    return {factor: Effect(float(means[i]), float(covariance[i, i])) for i, factor in enumerate(factors)}


def pooled_effects(sources: Sequence[tuple[float, Mapping[Factor, Effect]]], scale: Scale) -> dict[Factor, Effect]:
    """The effects to expect in a new case, from sources with their weights (1: just like it).

    The variance is what the sources disagree by (random effects; R. DerSimonian, N. Laird: Meta-analysis in clinical
    trials, 1986).
    """
    import numpy as np

    effects: dict[Factor, Effect] = {}
    for factor in sorted({factor for _, source in sources for factor in source}):
        prior = scale.prior(factor) ** 2
        known = [(weight, source[factor]) for weight, source in sources if factor in source]
        weights = np.array([weight * prior / (prior + effect.variance) for weight, effect in known])
        values = np.array([effect.mean for _, effect in known])
        mean = float(weights @ values / (weights.sum() + 0.1 * IGNORANCE))
        variance = (weights @ (values - mean) ** 2 + IGNORANCE * prior) / (weights.sum() + IGNORANCE)
        effects[factor] = Effect(mean, float(variance))
    return effects
