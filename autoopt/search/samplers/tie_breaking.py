"""The choice among points that promise the same: an already measured one, else the one with the least new work."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from autoopt.search.history import History
from autoopt.search.trial import Cost
from autoopt.space import Point
from autoopt.tuning import SEARCH


def cheapest(
    points: Sequence[tuple[str, Point]], scores: Sequence[float], history: History, cost: Cost | None, rng: Random
) -> tuple[str, Point]:
    """Return the point with the best score.

    Among equals, prefer a point whose candidate is measured already, then the one with the fewest passes that no
    earlier trial ran, then a random one.
    """
    best = max(scores)
    equals = [index for index, score in enumerate(scores) if score >= best - SEARCH.equal]
    if len(equals) > SEARCH.max_compared:
        equals = rng.sample(equals, SEARCH.max_compared)
    else:
        rng.shuffle(equals)

    def price(index: int) -> tuple[bool, int]:
        chain, point = points[index]
        suffix = uncached_suffix(history, chain, point)
        if cost is None:
            return True, suffix
        measured, uncached = cost(chain, point)
        return not measured, min(suffix, uncached)

    if len(equals) > 1:
        return points[min(equals, key=price)]
    return points[equals[0]]


def uncached_suffix(history: History, chain: str, point: Point) -> int:
    """Count the last passes of the chain that no finished trial ran after the same beginning."""
    nodes = history.by_id[chain].nodes
    longest = 0
    for trial in history.trials:
        if trial.feedback is None:
            continue
        shared = 0
        for node, other in zip(nodes, history.by_id[trial.proposal.chain].nodes, strict=False):
            if node != other or point.get(node) != trial.proposal.point.get(node):
                break
            shared += 1
        longest = max(longest, shared)
    return len(nodes) - longest
