"""The order of results: objectives as losses to minimize, the order of trials, Pareto fronts, and the best one."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from autoopt.metrics import Objective
from autoopt.search.trial import Feedback, Proposal
from autoopt.spec.search import Choose

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


@dataclass(frozen=True, eq=False)
class Scored:
    """A candidate that meets the constraints. Compared and hashed by identity."""

    values: Mapping[str, float]
    """Metrics by name."""
    passes: int = 0
    chain: str = ""
    order: int = 0
    """Index of its point in the chain's space."""

    @property
    def tie(self) -> tuple[int, str, int]:
        """Sort key among equals: fewer passes win, then the lower chain id, then the lower order."""
        return self.passes, self.chain, self.order


def non_dominated(rows: Sequence[Sequence[float]]) -> list[int]:
    """Return the indices of the rows of losses that no other row dominates; of equal rows only the first."""
    front: list[int] = []
    # In this order, every row comes after all rows that dominate or equal it.
    for index in sorted(range(len(rows)), key=lambda i: (tuple(rows[i]), i)):
        # Some row of the front may be nowhere worse.
        if not any(all(map(operator.le, rows[better], rows[index])) for better in front):
            front.append(index)
    return sorted(front)


def front_numbers(rows: Sequence[Sequence[float]]) -> list[int]:
    """Number the front that each row of losses is on: 0 for `non_dominated`, 1 for that of the others, and so on."""
    numbers = [0] * len(rows)
    left = list(range(len(rows)))
    number = 0
    while left:
        front = {left[index] for index in non_dominated([rows[row] for row in left])}
        for row in front:
            numbers[row] = number
        left = [row for row in left if row not in front]
        number += 1
    return numbers


def pareto_front(records: Sequence[Scored], objectives: Sequence[Objective]) -> list[Scored]:
    """Return the records that no other one dominates, best first by the objectives in order.

    Of records that are equal in all objectives, the front has the one that wins ties. Records that lack an objective
    are left out.
    """
    return [record for _, record in front_of(sort_by_losses(records, objectives))]


def front_of(rows: Sequence[tuple[Losses, Scored]]) -> list[tuple[Losses, Scored]]:
    """Return the rows whose losses no other row dominates, in the same order."""
    indices = non_dominated([loss for loss, _ in rows])
    return [rows[index] for index in indices]


def sort_by_losses(records: Sequence[Scored], objectives: Sequence[Objective]) -> list[tuple[Losses, Scored]]:
    """Return losses and records, best first by the objectives in order, then by the rule for ties."""
    rows = []
    for record in records:
        loss = losses_of(record.values, objectives)
        if loss is not None:
            rows.append((loss, record))
    return sorted(rows, key=lambda row: (row[0], row[1].tie))


EQUAL: Final = 1e-12
"""Weighted sums that differ by no more than this are equal up to rounding."""


def choose_best(records: Sequence[Scored], objectives: Sequence[Objective], how: Choose = "priority") -> Scored:
    """Choose one record.

    `priority`: the first objective decides, the next one only among equals. `weights`: the smallest weighted sum of the
    objectives, each scaled to the extent of the front (times and sizes by their logarithm). `knee`: the member of the
    front that lies farthest from the plane through the ends of the front, on the same scale; weights do not count.

    Raises:
        ValueError: no record has all objectives.
    """
    rows = sort_by_losses(records, objectives)
    if not rows:
        raise ValueError("no record has a value of every objective")
    if how == "priority" or len(objectives) == 1:
        return rows[0][1]
    front = front_of(rows)
    scaled = _scale([loss for loss, _ in front])
    weights = [1.0] * len(objectives)
    if how == "weights":
        weights = [objective.weight for objective in objectives]
    costs = [sum(map(operator.mul, weights, row)) for row in scaled]
    equals = [index for index, cost in enumerate(costs) if cost <= min(costs) + EQUAL]
    best = min(equals, key=lambda index: (scaled[index], front[index][1].tie))
    return front[best][1]


def _scale(rows: Sequence[Losses]) -> list[Losses]:
    """Map each column to 0 (best) .. 1 (worst of these rows)."""
    columns = []
    for column in zip(*log_where_positive(rows), strict=True):
        low, high = min(column), max(column)
        extent = high - low or 1.0
        columns.append(tuple((value - low) / extent for value in column))
    return list(zip(*columns, strict=True))


def best_first(trials: Sequence[Proposal], objectives: Sequence[Objective]) -> list[Proposal]:
    """Sort trials from best to worst.

    With several objectives, those of the Pareto front come first, then those of the front of the others, and so on.
    """
    ranked = sorted(trials, key=lambda trial: rank_key(trial.feedback, objectives))
    if len(objectives) == 1:
        return ranked
    complete: dict[int, Losses] = {}
    for place, trial in enumerate(ranked):
        loss = losses(trial.feedback, objectives)
        if loss is not None and feasible(trial.feedback):
            complete[place] = loss
    numbers = dict(zip(complete, front_numbers(list(complete.values())), strict=True))
    places = sorted(range(len(ranked)), key=lambda place: (numbers.get(place, len(ranked)), place))
    return [ranked[place] for place in places]
