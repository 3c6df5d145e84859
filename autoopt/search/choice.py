"""The choice of one best candidate among several."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

from autoopt.metrics import Objective
from autoopt.search.losses import Losses, log_where_positive
from autoopt.search.pareto import Scored, front_of, sort_by_losses
from autoopt.spec.search import Choose

EQUAL = 1e-12
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
    costs = [sum(map(mul, weights, row)) for row in scaled]
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
