"""What to try before there is anything to learn from. Light."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from autoopt.search.trial import ChainSpace
from autoopt.space import Point

DIVERSE = 6
SHARE, MOST = 0.2, 20
"""Every chain gets a first point where that takes no more of the budget than this share and no more than so many
points; else `DIVERSE` unlike chains do."""


def first_points(chains: Sequence[ChainSpace], budget: int, seed: int) -> list[tuple[str, Point]]:
    """The users' prior points, then one point each of all chains, or of some that have little in common."""
    filled = [chain for chain in chains if chain.space.count]
    by_weight = Random(f"{seed}:chains").sample(filled, len(filled))  # the order they are listed in says nothing
    by_weight.sort(key=lambda chain: -chain.weight)
    points = [(chain.id, point) for chain in by_weight for point in chain.prior]
    every = len(filled) <= max(DIVERSE, min(SHARE * budget, MOST))
    chosen = by_weight if every else diverse(by_weight, DIVERSE)
    drawn = ((chain, Random(f"{seed}:first:{chain.id}")) for chain in chosen if not chain.prior)
    return [*points, *((chain.id, chain.space.random_sample(rng)) for chain, rng in drawn)]


def diverse(chains: Sequence[ChainSpace], number: int) -> list[ChainSpace]:
    """The first chain, then each time the one whose passes differ most from all chosen ones."""
    passes = [{name for _, name in chain.passes} for chain in chains]
    far = [2.0] * len(chains)
    chosen: list[int] = []
    for _ in range(min(number, len(chains))):
        place = max(range(len(chains)), key=lambda i: far[i])
        chosen.append(place)
        far[place] = -1.0
        for i, names in enumerate(passes):
            if far[i] >= 0:
                union = names | passes[place]
                far[i] = min(far[i], 1 - len(names & passes[place]) / len(union) if union else 0.0)
    return [chains[place] for place in chosen]
