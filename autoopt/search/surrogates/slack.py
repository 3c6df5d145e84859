"""Constraints as numbers to learn: by how much a result keeps or breaks them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from autoopt.search.trial import Trial


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
