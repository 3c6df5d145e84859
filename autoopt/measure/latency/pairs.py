"""Pairs of blocks, source and candidate one after the other, and which of them count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoopt.measure.intervals.replicas import FEW

AWAY = 0.03
"""Share of a block in which the thread was kept from running, up to which the block counts as calm. After others had
its core, a model finds the caches cold, and one with large weights suffers more than one with small: with two other
processes on two cores the source of an int8 transformer was 3-20 % slower in such blocks, its candidate 1-13 %."""
SLOW = 0.1
"""How much slower than the fast blocks of its replica a calm block may be. Something outside, unseen from
within, slowed an fp32 model by 18 % and its int8 candidate by 55 %, for ten seconds and more at a time."""

PACE = 0.06
"""How much slower than at its better times the source may be for the whole of a measurement. On a machine that was left
alone it was up to 4 % slower; on one shared with others from outside, the ratio of an int8 LSTM was 8 % other in a
process in which the source was 7 % slower."""


class Pair(NamedTuple):
    """One block of each model: replica, median of the candidate's block and of the source's (1 where there is none) in
    ns, and the larger share of the two blocks in which the thread was kept from running."""

    replica: int
    mine: float
    base: float = 1.0
    away: float = 0.0


def kept(pairs: Sequence[Pair]) -> list[int]:
    """Numbers of the pairs that count, in time order: the calm ones of each replica, or its calmest quarter where
    fewer are calm; only of replicas with calm pairs where those are enough."""
    disturbed = disturbance(pairs)
    by_replica: dict[int, list[int]] = {}
    for number, pair in enumerate(pairs):
        by_replica.setdefault(pair.replica, []).append(number)
    chosen: list[list[int]] = []
    calm_ones: list[list[int]] = []
    for numbers in by_replica.values():
        calm = [n for n in numbers if disturbed[n] <= 1]
        least = math.ceil(len(numbers) / 4)
        chosen.append(calm if len(calm) >= least else sorted(numbers, key=lambda n: disturbed[n])[:least])
        calm_ones += [chosen[-1]] if calm else []
    enough = len(calm_ones) >= max(FEW, math.ceil(len(chosen) / 2))
    return sorted(n for numbers in (calm_ones if enough else chosen) for n in numbers)


def disturbance(pairs: Sequence[Pair]) -> list[float]:
    """How disturbed each pair is, at most 1 for calm ones: by how long the thread was away, and by how much slower
    than the fast quarter of its replica the slower of its blocks was."""
    replica = np.array([p.replica for p in pairs])
    slower = np.zeros(len(pairs))
    for side in (np.array([p.mine for p in pairs]), np.array([p.base for p in pairs])):
        for number in set(replica.tolist()):
            own = replica == number
            slower[own] = np.maximum(slower[own], side[own] / np.quantile(side[own], 0.25) - 1)
    return [max(p.away / AWAY, float(s) / SLOW) for p, s in zip(pairs, slower, strict=True)]
