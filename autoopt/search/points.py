"""The points a unified search chooses from: all of them where that is possible, a sample where it is not. Light."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from autoopt.search.history import History
from autoopt.search.trial import ChainSpace, point_key
from autoopt.space import Point

POOL: Final = 20_000
"""Spaces of at most so many points are enumerated; larger ones are sampled."""
SAMPLE = 1_000
"""Points drawn at random at each step where the space is too large to enumerate; then as many neighbours again of the
best points at most."""


def total_points(chains: Sequence[ChainSpace]) -> int:
    return sum(chain.space.count for chain in chains)


def iterate(chains: Sequence[ChainSpace]) -> Iterator[tuple[str, Point]]:
    """All (chain id, point), lazily, chain by chain."""
    return ((chain.id, point) for chain in chains for point in chain.space.iterate())


def random_sample(chains: Sequence[ChainSpace], rng: Random) -> tuple[str, Point]:
    """A (chain id, point) drawn uniformly from all points of all chains; `ValueError` where there is none."""
    index = rng.randrange(total_points(chains))
    for chain in chains:
        if index < chain.space.count:
            return chain.id, chain.space[index]
        index -= chain.space.count
    raise AssertionError("index beyond the last chain")


class PointTable:
    """All points of spaces up to `POOL` points, as (chain id, point) with their keys."""

    def __init__(self, chains: Sequence[ChainSpace]) -> None:
        if total_points(chains) > POOL:
            raise ValueError(f"more than {POOL} points")
        self.points = list(iterate(chains))
        nodes = {chain.id: chain.nodes for chain in chains}
        self.keys = [point_key(nodes[chain], point) for chain, point in self.points]
        self.rows = {key: row for row, key in enumerate(self.keys)}


def sample(
    chains: Sequence[ChainSpace], history: History, best: Sequence[tuple[str, Point]], rng: Random
) -> list[tuple[str, Point]]:
    """New points of a space too large to enumerate: drawn from every chain alike, and neighbours of the `best` ones."""
    found: dict[str, tuple[str, Point]] = {}

    def note(chain: ChainSpace, point: Point) -> None:
        key = point_key(chain.nodes, point)
        if not history.seen(key):
            found.setdefault(key, (chain.id, point))

    filled = [chain for chain in chains if chain.space.count]
    for _ in range(SAMPLE):
        chain = rng.choice(filled)
        note(chain, chain.space.random_sample(rng))
    for chain_id, point in best:
        chain = history.by_id[chain_id]
        for _ in range(SAMPLE // max(1, len(best))):
            note(chain, neighbour(chain, point, rng))
    return list(found.values())


def neighbour(chain: ChainSpace, point: Point, rng: Random) -> Point:
    """`point` with one node's settings drawn anew; a random point where that breaks a cut."""
    node = rng.choice([n for n, space in chain.space.nodes.items() if space.count > 1] or [""])
    if not node:
        return point
    space = chain.space.nodes[node]
    changed = {n: (space[rng.randrange(space.count)] if n == node else point.get(n, {})) for n in chain.space.nodes}
    made = {n: values for n, values in changed.items() if values}
    return made if chain.space.allows(made) else chain.space.random_sample(rng)
