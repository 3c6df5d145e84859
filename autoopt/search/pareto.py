"""Pareto fronts of measured candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoopt.metrics import Objective
from autoopt.search.losses import signed


@dataclass(frozen=True, eq=False)
class Scored:
    """A candidate that respects the constraints, as choosing sees it. Compared and hashed by identity.

    `values`: metrics by name. Among equals the one with fewer `passes` wins, then the lower `chain` id, then the lower
    `order` (of its point in the chain).
    """

    values: Mapping[str, float]
    passes: int = 0
    chain: str = ""
    order: int = 0

    @property
    def tie(self) -> tuple[int, str, int]:
        return self.passes, self.chain, self.order


def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether losses `a` are nowhere worse than `b` and somewhere better."""
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def non_dominated(rows: Sequence[Sequence[float]]) -> list[int]:
    """Places of the rows of losses that no other row dominates; of equal rows the first."""
    order = sorted(range(len(rows)), key=lambda i: (tuple(rows[i]), i))
    front: list[int] = []
    for place in order:  # whatever dominates a row, or equals it, comes before it
        if not any(all(x <= y for x, y in zip(rows[f], rows[place], strict=True)) for f in front):
            front.append(place)
    return sorted(front)


def pareto_front(records: Sequence[Scored], objectives: Sequence[Objective]) -> list[Scored]:
    """Records that no other one dominates, best first by the objectives in order. Of records that are equal in all
    objectives the one that wins ties; records that lack an objective are left out."""
    rows = sort_by_losses(records, objectives)
    return [rows[place][1] for place in non_dominated([loss for loss, _ in rows])]


def hypervolume(rows: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """The volume that rows of losses dominate below `reference`; the measure of a front. Exact, by slicing."""
    inside = [tuple(row) for row in rows if all(v < r for v, r in zip(row, reference, strict=True))]
    if not inside:
        return 0.0
    front = sorted(inside[i] for i in non_dominated(inside))
    if len(reference) == 1:
        return reference[0] - front[0][0]
    volume = 0.0
    for place, row in enumerate(front):
        upper = front[place + 1][0] if place + 1 < len(front) else reference[0]
        if upper > row[0]:
            volume += (upper - row[0]) * hypervolume([other[1:] for other in front[: place + 1]], reference[1:])
    return volume


def sort_by_losses(
    records: Sequence[Scored], objectives: Sequence[Objective]
) -> list[tuple[tuple[float, ...], Scored]]:
    """Losses and records, best first by the objectives in order, then by the rule for ties."""
    rows = [(loss, r) for r in records if (loss := signed(r.values, objectives)) is not None]
    return sorted(rows, key=lambda row: (row[0], row[1].tie))
