"""Objectives as losses to minimize, and the order of trials from best to worst."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autoopt.metrics import Objective
from autoopt.search.trial import Feedback


def losses(feedback: Feedback, objectives: Sequence[Objective]) -> tuple[float, ...] | None:
    """The objectives as numbers to minimise; None where the trial failed or one is missing or not finite."""
    if feedback.failed:
        return None
    return signed(feedback.values, objectives)


def signed(values: Mapping[str, float], objectives: Sequence[Objective]) -> tuple[float, ...] | None:
    """`values` of the objectives, negated where more is better; None where one is missing or not finite."""
    out = []
    for objective in objectives:
        value = values.get(objective.metric)
        if value is None or not math.isfinite(value):
            return None
        out.append(float(value) if objective.goal == "minimize" else -float(value))
    return tuple(out)


def feasible(feedback: Feedback) -> bool:
    """Whether it respects the constraints; a failed trial does not."""
    return not feedback.failed and feedback.violation <= 0


def rank_key(feedback: Feedback | None, objectives: Sequence[Objective]) -> tuple[float, ...]:
    """Sorts trials from best to worst: feasible ones by their objectives in order of priority, then infeasible ones by
    their violation, then ones without values, then failed and unfinished ones."""
    if feedback is None or feedback.failed:
        return (3.0,)
    loss = losses(feedback, objectives)
    if not feasible(feedback):
        return (1.0, math.inf if math.isnan(feedback.violation) else feedback.violation, *(loss or ()))
    return (0.0, *loss) if loss is not None else (2.0,)


def log_where_positive(rows: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """`rows` of losses with the logarithm of every column that is above 0 throughout (times, sizes)."""
    columns = [
        tuple(math.log(v) for v in column) if all(v > 0 for v in column) else column
        for column in zip(*rows, strict=True)
    ]
    return list(zip(*columns, strict=True))
