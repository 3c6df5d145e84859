"""The choice of one best candidate among several."""

from __future__ import annotations

from collections.abc import Sequence

from autoopt.metrics import Objective
from autoopt.search.losses import log_where_positive
from autoopt.search.pareto import Scored, non_dominated, sort_by_losses
from autoopt.spec.search import Choose


def choose_best(records: Sequence[Scored], objectives: Sequence[Objective], how: Choose = "priority") -> Scored:
    """One best record.

    `priority`: the first objective decides, the next one only among equals. `weights`: the least weighted sum of the
    objectives, each scaled to the front's extent (times and sizes by their logarithm). `knee`: the front's member that
    bulges farthest from the plane through the front's ends, in the same scale; weights do not count.

    Raises:
        ValueError: no record has all objectives.
    """
    rows = sort_by_losses(records, objectives)
    if not rows:
        raise ValueError("no record has a value of every objective")
    if how == "priority" or len(objectives) == 1:
        return rows[0][1]
    front = [rows[place] for place in non_dominated([loss for loss, _ in rows])]
    scaled = _scaled([loss for loss, _ in front])
    weights = [objective.weight if how == "weights" else 1.0 for objective in objectives]
    costs = [sum(w * v for w, v in zip(weights, row, strict=True)) for row in scaled]
    best = min(costs)
    equals = [(row, r.tie, r) for (_, r), row, cost in zip(front, scaled, costs, strict=True) if cost <= best + 1e-12]
    return min(equals, key=lambda found: found[:2])[2]


def _scaled(rows: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Each column mapped to 0 (best) to 1 (worst of these rows)."""
    rows = log_where_positive(rows)
    spans = [(min(column), max(column)) for column in zip(*rows, strict=True)]
    return [
        tuple((v - low) / (high - low) if high > low else 0.0 for v, (low, high) in zip(row, spans, strict=True))
        for row in rows
    ]
