"""Objectives as losses to minimize, and the order of trials from best to worst."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from autoopt.metrics import Objective
from autoopt.search.trial import Feedback

Losses: TypeAlias = tuple[float, ...]
"""One number for each objective; less is better."""


def losses(feedback: Feedback | None, objectives: Sequence[Objective]) -> Losses | None:
    """Return the losses of a trial; None if it runs or failed, or an objective is missing or not finite."""
    if feedback is None or feedback.failed:
        return None
    return losses_of(feedback.values, objectives)


def losses_of(values: Mapping[str, float], objectives: Sequence[Objective]) -> Losses | None:
    """Return metric values as losses, negated where more is better; None if one is missing or not finite."""
    result = []
    for objective in objectives:
        value = values.get(objective.metric)
        if value is None or not math.isfinite(value):
            return None
        if objective.goal == "minimize":
            result.append(float(value))
        else:
            result.append(-float(value))
    return tuple(result)


def feasible(feedback: Feedback | None) -> bool:
    """Tell if a result meets the constraints; a failed or running trial does not."""
    return feedback is not None and not feedback.failed and feedback.violation <= 0


def rank_key(feedback: Feedback | None, objectives: Sequence[Objective]) -> tuple[float, ...]:
    """Sort key of trials from best to worst.

    Feasible trials come first, by their objectives in order of priority; then infeasible ones by their violation,
    trials without values, and failed or running ones.
    """
    if feedback is None or feedback.failed:
        return (3.0,)
    loss = losses(feedback, objectives)
    if not feasible(feedback):
        violation = feedback.violation
        if math.isnan(violation):
            violation = math.inf
        return (1.0, violation, *(loss or ()))
    if loss is None:
        return (2.0,)
    return (0.0, *loss)


def log_where_positive(rows: Sequence[Losses]) -> list[Losses]:
    """Replace every column that is positive throughout (times, sizes) by its logarithm."""
    columns = []
    for column in zip(*rows, strict=True):
        if min(column) > 0:
            columns.append(tuple(map(math.log, column)))
        else:
            columns.append(column)
    return list(zip(*columns, strict=True))
