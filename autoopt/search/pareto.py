"""Pareto fronts of measured candidates."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoopt.metrics import Objective
from autoopt.search.losses import Losses, losses_of


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
    losses = [loss for loss, _ in rows]
    return [rows[index] for index in non_dominated(losses)]


def sort_by_losses(records: Sequence[Scored], objectives: Sequence[Objective]) -> list[tuple[Losses, Scored]]:
    """Return losses and records, best first by the objectives in order, then by the rule for ties."""
    rows = []
    for record in records:
        loss = losses_of(record.values, objectives)
        if loss is not None:
            rows.append((loss, record))
    return sorted(rows, key=lambda row: (row[0], row[1].tie))
