"""Trials as what is learned: points and their results as arrays, a loss, and the constraints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from autoopt.metrics import Objective
from autoopt.search.losses import feasible, losses
from autoopt.search.surrogates.gaussian_process import Array
from autoopt.search.trial import Proposal
from autoopt.tuning import SEARCH, STOPPING


@dataclass(frozen=True)
class Observations:
    """The asked points: rows `x`, `loss` to minimize (NaN without one), `feasible` (1 or 0, NaN while running)."""

    x: Array
    loss: Array
    feasible: Array
    violation: Array | None = None
    """By how much the constraints are broken, with 0 as the limit and NaN without a result; None if unknown."""
    failed: Array | None = None
    """1 where a trial failed, so that nothing is known about the constraints; else 0. None: no trial failed."""

    @property
    def emphasized(self) -> Observations:
        """The same with the losses above the median of the feasible ones compressed, the more the worse they are.

        A process whose variance is that of the worst candidates expects as much of every point that was not tried.
        Differences among the better half count in full.
        """
        import numpy as np

        known = self.loss[(self.feasible == 1) & np.isfinite(self.loss)]
        if len(known) < 3:
            return self
        middle = float(np.median(known))
        extent = max(middle - float(known.min()), SEARCH.least_extent)
        excess = np.maximum(self.loss - middle, 0.0)
        loss = np.minimum(self.loss, middle) + extent * np.log1p(excess / extent)
        return replace(self, loss=loss)

    def __getitem__(self, rows: Array) -> Observations:
        violation = None if self.violation is None else self.violation[rows]
        failed = None if self.failed is None else self.failed[rows]
        return Observations(self.x[rows], self.loss[rows], self.feasible[rows], violation, failed)


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


@dataclass(frozen=True)
class Single:
    """One loss for each trial, NaN where there is none. `unit` is the difference of losses that stands for 100 %."""

    loss: list[float]
    unit: float = 1.0


def single_losses(trials: Sequence[Proposal], objectives: Sequence[Objective]) -> Single:
    """The loss of each trial for one objective; differences of times and sizes are relative."""
    (objective,), (column,) = objectives, loss_columns(trials, objectives)
    known = [loss for loss in column if math.isfinite(loss)]
    if not known or _are_positive(trials, objective):
        return Single(column)
    reference = [loss for trial, loss in zip(trials, column, strict=True) if feasible(trial.feedback)]
    best = min(filter(math.isfinite, reference), default=min(known))
    return Single(column, unit=abs(best) or 1.0)


def loss_columns(trials: Sequence[Proposal], objectives: Sequence[Objective]) -> list[list[float]]:
    """The losses of the trials by objective, NaN where one is missing; positive ones (times, sizes) as logarithms.

    A trial that broke a constraint before its latency was measured may still have a size.
    """
    columns: list[list[float]] = []
    for objective in objectives:
        found = [losses(trial.feedback, [objective]) for trial in trials]
        column = [math.nan if loss is None else loss[0] for loss in found]
        columns.append(list(map(math.log, column)) if _are_positive(trials, objective) else column)
    return columns


def _are_positive(trials: Sequence[Proposal], objective: Objective) -> bool:
    """Tell if all losses of an objective are."""
    found = [losses(trial.feedback, [objective]) for trial in trials]
    return all(loss is None or loss[0] > 0 for loss in found)


def may_stop(single: Single, asked: Sequence[Proposal], initial: int) -> bool:
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


def scaled_violations(trials: Sequence[Proposal]) -> list[float] | None:
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


def _violation(trial: Proposal) -> float:
    if trial.feedback is None or trial.feedback.failed:
        return math.nan
    return trial.feedback.violation
