"""Pairs of blocks, one of the source and one of the candidate, and the choice of those that count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoopt.measure.intervals.replicas import FEW
from autoopt.measure.latency.timer import Block
from autoopt.tuning import TIMING


class Pair(NamedTuple):
    """One block of each model. Times are in ns."""

    replica: int
    candidate: float
    """Median of the candidate's block."""
    source: float = 1.0
    """Median of the source's block; 1 if there is no source."""
    disturbed: float = 0.0
    """The larger share of the two blocks that others cost them."""
    preempted: float = 0.0
    """The larger share of the two blocks' times in which others had the core. The median of many calls does not show
    it, means and percentiles do."""

    def beside(self, source: Pair) -> Pair:
        """Make the pair of this candidate's block and the source's, which was timed as a candidate alone."""
        disturbed, preempted = max(self.disturbed, source.disturbed), max(self.preempted, source.preempted)
        return Pair(self.replica, self.candidate, source.candidate, disturbed, preempted)


def disturbed_share(block: Block, *, on_core: bool) -> float:
    """Compute the share of a block that others cost it.

    With `on_core`, times on the core are compared, where only the cold caches after a preemption count.
    """
    times = block.on_core if on_core else block.wall
    waiting_share = block.helper_switches * TIMING.helper_ns / float(times.sum())
    if on_core:
        return waiting_share + block.switches * TIMING.switch_ns / float(times.sum())
    return max(waiting_share, block.preempted)


def preempted_share(block: Block, *, on_core: bool) -> float:
    """Compute the share of a block's times, on the core or by the clock, in which others had the core."""
    return 0.0 if on_core and block.has_core_times else block.preempted


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
        best = [number for number in numbers if levels[number] <= 1]
        if best:
            undisturbed += best
            undisturbed_replicas += 1
        fewest = math.ceil(len(numbers) / 4)
        if len(best) < fewest:
            best = sorted(numbers, key=lambda number: levels[number])[:fewest]
        selected += best
    if undisturbed_replicas >= max(FEW, math.ceil(len(by_replica) / 2)):
        selected = undisturbed
    return sorted(selected)


def disturbance(pairs: Sequence[Pair]) -> list[float]:
    """Rate how disturbed each pair is; undisturbed pairs have at most 1.

    The rating is the larger of two: the time that others cost, and how much slower than the fast quarter
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
        levels.append(max(pair.disturbed / TIMING.disturbed, float(slow) / TIMING.slow_block))
    return levels
