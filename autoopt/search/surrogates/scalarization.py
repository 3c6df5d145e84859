"""Several objectives as one loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from autoopt.metrics import Objective
from autoopt.search.losses import Losses, feasible, log_where_positive, losses
from autoopt.search.trial import Trial

RHO: Final = 0.05
"""Weight of the weighted sum beside the weighted maximum (augmented Tchebycheff); Knowles' value."""
MIN_TRIALS: Final = 10
"""Trials before a search may stop because nothing promises enough."""


@dataclass(frozen=True)
class Single:
    """One loss for each trial, NaN where there is none. `unit` is the difference of losses that stands for 100 %."""

    loss: list[float]
    unit: float = 1.0


def single_losses(trials: Sequence[Trial], objectives: Sequence[Objective], rng: Random) -> Single:
    """Combine the objectives of each trial into one loss.

    Times and sizes count by their logarithm. Several objectives are weighted at random, differently at each call, so
    that repeated calls spread over the Pareto front (J. Knowles: ParEGO, 2006).
    """
    raw: dict[int, Losses] = {}
    for number, trial in enumerate(trials):
        loss = losses(trial.feedback, objectives)
        if loss is not None:
            raw[number] = loss
    if not raw:
        return Single([math.nan] * len(trials))
    rows = dict(zip(raw, log_where_positive(list(raw.values())), strict=True))
    reference = [row for number, row in rows.items() if feasible(trials[number].feedback)] or list(rows.values())
    unit = 1.0
    if len(objectives) > 1:
        weights = draw_weights(objectives, rng)
        spans = [(min(column), max(column)) for column in zip(*reference, strict=True)]
        known = {number: tchebycheff(row, spans, weights) for number, row in rows.items()}
    else:
        known = {number: row[0] for number, row in rows.items()}
        if min(raw.values()) <= (0.0,):  # others are logarithms, whose differences are relative already
            unit = abs(min(reference)[0]) or 1.0
    return Single([known.get(number, math.nan) for number in range(len(trials))], unit)


def draw_weights(objectives: Sequence[Objective], rng: Random) -> list[float]:
    """Draw weights from the simplex, and multiply them by the weights of the objectives."""
    weights = [rng.expovariate(1.0) * objective.weight for objective in objectives]
    total = sum(weights) or 1.0
    return [weight / total for weight in weights]


def tchebycheff(row: Sequence[float], spans: Sequence[tuple[float, float]], weights: Sequence[float]) -> float:
    """Largest weighted distance from the ideal point, in units of the front's extent, plus a share of the sum."""
    parts = []
    for value, (low, high), weight in zip(row, spans, weights, strict=True):
        distance = value - low
        if high > low:
            distance /= high - low
        parts.append(weight * distance)
    return max(parts) + RHO * sum(parts)


def may_stop(single: Single, asked: Sequence[Trial], initial: int) -> bool:
    """Tell if a search may stop because nothing promises enough.

    It needs a feasible result and enough trials. `asked` are the trials to which the first losses of `single` belong,
    `initial` is the number of points that the search begins with.
    """
    if len(asked) < max(MIN_TRIALS, initial):
        return False
    for loss, trial in zip(single.loss, asked, strict=False):
        if math.isfinite(loss) and feasible(trial.feedback):
            return True
    return False


def improvement_below(threshold: float, score: float, single: Single) -> bool:
    """Tell if a score (log of expected improvement, in losses) promises less than the fraction `threshold`."""
    return math.exp(min(score, 700.0)) / single.unit < threshold
