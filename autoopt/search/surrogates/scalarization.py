"""Trials as numbers to learn: a loss, with several objectives how much of the front is known, and the constraints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from autoopt.metrics import Objective
from autoopt.search.losses import Losses, feasible, losses
from autoopt.search.pareto import non_dominated
from autoopt.search.surrogates.hypervolume import hypervolume
from autoopt.search.trial import Trial
from autoopt.tuning import SEARCH, STOPPING

RESOLVED: Final = 1e-9
"""The same at least, relative to the worst loss: less would vanish in the rounding of huge losses."""


@dataclass(frozen=True)
class Single:
    """One loss for each trial, NaN where there is none. `unit` is the difference of losses that stands for 100 %."""

    loss: list[float]
    unit: float = 1.0


def single_losses(trials: Sequence[Trial], objectives: Sequence[Objective]) -> Single:
    """Compute one loss for each trial; differences of times and sizes are relative.

    With several objectives, it is the negative logarithm of the hypervolume that the feasible trials have up to this
    one, and NaN for trials that are not feasible.
    """
    columns = loss_columns(trials, objectives)
    if len(objectives) > 1:
        return Single(_front_losses(trials, columns))
    (column,) = columns
    known = [loss for loss in column if math.isfinite(loss)]
    if not known or _are_positive(trials, objectives[0]):
        return Single(column)
    reference = [loss for trial, loss in zip(trials, column, strict=True) if feasible(trial.feedback)]
    best = min((loss for loss in reference if math.isfinite(loss)), default=min(known))
    return Single(column, unit=abs(best) or 1.0)


def loss_columns(trials: Sequence[Trial], objectives: Sequence[Objective]) -> list[list[float]]:
    """The losses of the trials by objective, NaN where one is missing; positive ones (times, sizes) as logarithms.

    A trial that broke a constraint before its latency was measured may still have a size.
    """
    columns: list[list[float]] = []
    for objective in objectives:
        found = [losses(trial.feedback, [objective]) for trial in trials]
        column = [math.nan if loss is None else loss[0] for loss in found]
        columns.append(list(map(math.log, column)) if _are_positive(trials, objective) else column)
    return columns


def _are_positive(trials: Sequence[Trial], objective: Objective) -> bool:
    """Tell if all losses of an objective are."""
    found = [losses(trial.feedback, [objective]) for trial in trials]
    return all(loss is None or loss[0] > 0 for loss in found)


def _front_losses(trials: Sequence[Trial], columns: Sequence[Sequence[float]]) -> list[float]:
    """The negative logarithm of the hypervolume so far, of each feasible trial with all objectives; else NaN."""
    rows: dict[int, Losses] = {}
    for number, (trial, row) in enumerate(zip(trials, zip(*columns, strict=True), strict=True)):
        if feasible(trial.feedback) and all(map(math.isfinite, row)):
            rows[number] = row
    found = [math.nan] * len(trials)
    if not rows:
        return found
    reference = reference_point(list(rows.values()), [1.0] * len(columns))
    front: list[Losses] = []
    for number, row in rows.items():
        front = undominated([*front, row])
        found[number] = -math.log(hypervolume(front, reference))
    return found


def reference_point(rows: Sequence[Losses], units: Sequence[float]) -> Losses:
    """A point beyond the worst loss of each column, by a share of its extent and at least `SEARCH.least_beyond`.

    `units` are those of the losses. Where the losses of an objective hardly differ, they matter little then.
    """
    reference: list[float] = []
    for column, unit in zip(zip(*rows, strict=True), units, strict=True):
        worst = max(column)
        extent = worst - min(column)
        reference.append(worst + max(SEARCH.beyond * extent, SEARCH.least_beyond / unit, RESOLVED * abs(worst)))
    return tuple(reference)


def undominated(rows: Sequence[Losses]) -> list[Losses]:
    """The rows that no other one dominates; of equal ones the first."""
    return [rows[index] for index in non_dominated(rows)]


def may_stop(single: Single, asked: Sequence[Trial], initial: int) -> bool:
    """Tell if a search may stop because nothing promises enough.

    It needs a feasible result and enough trials. `asked` are the trials to which the first losses of `single` belong,
    `initial` is the number of points that the search begins with.
    """
    if len(asked) < max(STOPPING.min_candidates, initial):
        return False
    for loss, trial in zip(single.loss, asked, strict=False):
        if math.isfinite(loss) and feasible(trial.feedback):
            return True
    return False


def improvement_below(threshold: float, score: float, single: Single) -> bool:
    """Tell if a score (log of expected improvement, in losses) promises less than the fraction `threshold`."""
    return math.exp(min(score, 700.0)) / single.unit < threshold


def scaled_violations(trials: Sequence[Trial]) -> list[float] | None:
    """Scale the violation of each trial, NaN where there is none; above 0 a constraint is broken.

    The scale is that of the results that keep the constraints, and logarithmic far from the limit, so that results
    near the limit differ as much as those that break it by far.

    Returns:
        One number for each trial. None unless some results keep the constraints, some break them, and all say by how
        much.
    """
    raw = list(map(_violation, trials))
    within = [-value for value in raw if value < 0]
    distinct = {value for value in raw if math.isfinite(value)}
    if not within or len(distinct) < 3 or max(distinct) <= 0:
        return None
    unit = median(within)
    return [math.asinh(value / unit) for value in raw]


def _violation(trial: Trial) -> float:
    if trial.feedback is None or trial.feedback.failed:
        return math.nan
    return trial.feedback.violation
