"""Which of several equally promising points to take: a free one, else the one with the least new work. Light."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from autoopt.search.history import History
from autoopt.search.trial import Cost
from autoopt.space import Point

EQUAL = 0.02
"""Scores (logarithms) closer to the best one than this are equals."""
COMPARED = 16


def cheapest(
    points: Sequence[tuple[str, Point]], scores: Sequence[float], history: History, cost: Cost | None, rng: Random
) -> tuple[str, Point]:
    """The best-scored point; among equals the one whose candidate is already measured, then the one with the fewest
    passes that nothing earlier ran; then at random."""
    best = max(scores)
    equals = [place for place, score in enumerate(scores) if score >= best - EQUAL]
    if len(equals) > COMPARED:
        equals = rng.sample(equals, COMPARED)
    else:
        rng.shuffle(equals)

    def price(place: int) -> tuple[bool, int]:
        chain, point = points[place]
        suffix = uncached_suffix(history, chain, point)
        free, before = cost(chain, point) if cost else (False, suffix)
        return not free, min(suffix, before)

    return points[min(equals, key=price) if len(equals) > 1 else equals[0]]


def uncached_suffix(history: History, chain: str, point: Point) -> int:
    """How many of the chain's last passes no told trial has run from the same beginning."""
    nodes = history.by_id[chain].nodes
    shared = 0
    for trial in history.trials:
        if trial.feedback is None:
            continue
        others = history.by_id[trial.proposal.chain].nodes
        length = 0
        for node, other in zip(nodes, others, strict=False):
            if node != other or point.get(node) != trial.proposal.point.get(node):
                break
            length += 1
        shared = max(shared, length)
    return len(nodes) - shared
