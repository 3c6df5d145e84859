"""Several objectives as one loss. Light."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from autoopt.metrics import Objective
from autoopt.search.losses import feasible, log_where_positive, losses
from autoopt.search.trial import Trial

RHO = 0.05
"""Share of the weighted sum beside the weighted maximum (augmented Tchebycheff)."""


@dataclass(frozen=True)
class Single:
    """`loss`: one number per trial, NaN where it has none. `unit`: the difference of losses that stands for 100 %."""

    loss: list[float]
    unit: float = 1.0


def single_losses(trials: Sequence[Trial], objectives: Sequence[Objective], rng: Random) -> Single:
    """Logarithms of times and sizes, other values as they are; several objectives in a weighting drawn anew at each
    call (ParEGO of Knowles, 2006), so that repeated calls spread over the Pareto front."""
    raw = [losses(t.feedback, objectives) if t.feedback is not None else None for t in trials]
    known = [loss for loss in raw if loss is not None]
    if not known:
        return Single([math.nan] * len(raw))
    rows = iter(log_where_positive(known))
    scaled = [None if loss is None else next(rows) for loss in raw]
    good = [r for r, t in zip(scaled, trials, strict=True) if r is not None and t.feedback and feasible(t.feedback)]
    good = good or [row for row in scaled if row is not None]
    if len(objectives) == 1:
        loss = [math.nan if row is None else row[0] for row in scaled]
        logarithmic = min(known) > (0.0,)
        return Single(loss, 1.0 if logarithmic else abs(min(good)[0]) or 1.0)
    spans = [(min(c), max(c)) for c in zip(*good, strict=True)]
    weights = draw_weights(objectives, rng)
    return Single([math.nan if row is None else tchebycheff(row, spans, weights) for row in scaled])


def draw_weights(objectives: Sequence[Objective], rng: Random) -> list[float]:
    """Weights drawn from the simplex, times the objectives' own."""
    drawn = [rng.expovariate(1.0) * objective.weight for objective in objectives]
    total = sum(drawn) or 1.0
    return [value / total for value in drawn]


def tchebycheff(row: Sequence[float], spans: Sequence[tuple[float, float]], weights: Sequence[float]) -> float:
    """The largest weighted distance from the ideal point, in units of the front's extent, plus a little of the sum."""
    parts = [
        weight * ((value - low) / (high - low) if high > low else value - low)
        for value, (low, high), weight in zip(row, spans, weights, strict=True)
    ]
    return max(parts) + RHO * sum(parts)


LEAST_TO_STOP = 10
"""No search ends for want of promise before it has seen so many points."""


def may_stop(single: Single, good: Sequence[float], first: int) -> bool:
    """Whether enough is known to end for want of promise: something feasible, and not too few points.

    `good`: of each trial 1 or 0, NaN while it runs. `first`: how many points the search begins with.
    """
    known = any(math.isfinite(loss) and g == 1 for loss, g in zip(single.loss, good, strict=True))
    return known and len(good) >= max(LEAST_TO_STOP, first)


def too_little(score: float, single: Single, threshold: float) -> bool:
    """Whether the best score (log of expected improvement, in losses) promises less than the fraction `threshold`."""
    return math.exp(min(score, 700.0)) / single.unit < threshold
