"""Pairs of blocks, one of the source and one of the candidate, and the choice of those that count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoopt.measure.intervals.replicas import FEW

PREEMPTED = 0.03
"""Share of a block in which the thread was preempted, up to which the block counts as undisturbed. After others had its
core, a model finds the caches cold, and one with large weights suffers more than one with small weights: with two other
processes on two cores the source of an int8 transformer was 3-20 % slower in such blocks, its candidate 1-13 %."""
SLOW = 0.1
"""How much slower than the fast blocks of its replica an undisturbed block may be. Something outside the virtual
machine slowed an fp32 model by 18 % and its int8 candidate by 55 %, for ten seconds and more at a time."""


class Pair(NamedTuple):
    """One block of each model. Times are in ns."""

    replica: int
    candidate: float
    """Median of the candidate's block."""
    source: float = 1.0
    """Median of the source's block; 1 if there is no source."""
    preempted: float = 0.0
    """The larger share of the two blocks in which the thread was preempted."""


def select_pairs(pairs: Sequence[Pair]) -> list[int]:
    """Select the pairs that count, as indices in time order.

    These are the undisturbed pairs of each replica, or its least disturbed quarter if fewer are undisturbed. Replicas
    without any undisturbed pair count only if there are too few others.
    """
    levels = disturbance(pairs)
    by_replica: dict[int, list[int]] = {}
    for number, pair in enumerate(pairs):
        by_replica.setdefault(pair.replica, []).append(number)
    selected: list[int] = []
    undisturbed: list[int] = []
    undisturbed_replicas = 0
    for numbers in by_replica.values():
        calm = [number for number in numbers if levels[number] <= 1]
        fewest = math.ceil(len(numbers) / 4)
        best = calm
        if len(calm) < fewest:
            best = sorted(numbers, key=lambda number: levels[number])[:fewest]
        selected += best
        if calm:
            undisturbed += best
            undisturbed_replicas += 1
    if undisturbed_replicas >= max(FEW, math.ceil(len(by_replica) / 2)):
        selected = undisturbed
    return sorted(selected)


def disturbance(pairs: Sequence[Pair]) -> list[float]:
    """Rate how disturbed each pair is; undisturbed pairs have at most 1.

    The rating is the larger of two: the time that the thread was preempted, and how much slower than the fast quarter
    of its replica the slower of its blocks was.
    """
    replica = np.array([pair.replica for pair in pairs])
    slowdown = np.zeros(len(pairs))
    for times in (np.array([pair.candidate for pair in pairs]), np.array([pair.source for pair in pairs])):
        for number in set(replica.tolist()):
            mask = replica == number
            slowdown[mask] = np.maximum(slowdown[mask], times[mask] / np.quantile(times[mask], 0.25) - 1)
    levels = []
    for pair, slow in zip(pairs, slowdown, strict=True):
        levels.append(max(pair.preempted / PREEMPTED, float(slow) / SLOW))
    return levels
