"""The points of chains: all of them where a space is small enough to enumerate, a sample where it is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from autoopt.search.history import History
from autoopt.search.transitions import steps_of
from autoopt.search.trial import ChainSpace, Feedback, point_key
from autoopt.space import Point

POOL: Final = 20_000
"""Largest space, in points, that is enumerated; larger ones are sampled."""
SAMPLE: Final = 1_000
"""Points drawn at random from a larger space at each step; then at most as many neighbours of the best points."""


def total_points(chains: Sequence[ChainSpace]) -> int:
    """Count the points of all chains."""
    return sum(chain.space.count for chain in chains)


def iterate(chains: Sequence[ChainSpace]) -> Iterator[tuple[str, Point]]:
    """Yield every (chain id, point), lazily, chain by chain."""
    for chain in chains:
        for point in chain.space.iterate():
            yield chain.id, point


def random_sample(chains: Sequence[ChainSpace], rng: Random) -> tuple[str, Point]:
    """Draw a (chain id, point) uniformly from all points of all chains.

    Raises:
        ValueError: no chain has a point.
    """
    index = rng.randrange(total_points(chains))
    for chain in chains:
        if index < chain.space.count:
            return chain.id, chain.space[index]
        index -= chain.space.count
    raise AssertionError("index beyond the last chain")


class PointTable:
    """All points of some chains as (chain id, point), and the row of each by its key."""

    def __init__(self, chains: Sequence[ChainSpace]) -> None:
        """Enumerate the points.

        Raises:
            ValueError: more than `POOL` points.
        """
        if total_points(chains) > POOL:
            raise ValueError(f"more than {POOL} points")
        self.points = list(iterate(chains))
        nodes = {chain.id: chain.nodes for chain in chains}
        self.rows = {point_key(nodes[chain], point): row for row, (chain, point) in enumerate(self.points)}
        self._steps = [steps_of(nodes[chain], point) for chain, point in self.points]

    def split(self, asked: Sequence[int], history: History) -> tuple[list[int], list[tuple[int, Feedback]]]:
        """Split the other rows into those that may give a new candidate, and those that repeat a finished trial's.

        Rows that repeat the source are in neither.
        """
        free: list[int] = []
        repeats: list[tuple[int, Feedback]] = []
        for row in sorted(set(range(len(self.points))) - set(asked)):
            known = history.known(self._steps[row])
            if known is None:
                free.append(row)
            elif known.feedback is not None:
                repeats.append((row, known.feedback))
        return free, repeats


def sample(
    chains: Sequence[ChainSpace], history: History, best: Sequence[tuple[str, Point]], rng: Random
) -> list[tuple[str, Point]]:
    """Draw new points of a large space: from every chain alike, and neighbours of the `best` points."""
    drawn: dict[str, tuple[str, Point]] = {}

    def add(chain: ChainSpace, point: Point) -> None:
        key = point_key(chain.nodes, point)
        if not history.has_key(key) and history.known(steps_of(chain.nodes, point)) is None:
            drawn.setdefault(key, (chain.id, point))

    nonempty = [chain for chain in chains if chain.space.count]
    for _ in range(SAMPLE):
        chain = rng.choice(nonempty)
        add(chain, chain.space.random_sample(rng))
    for chain_id, point in best:
        chain = history.by_id[chain_id]
        for _ in range(SAMPLE // len(best)):
            add(chain, neighbour(chain, point, rng))
    return list(drawn.values())


def neighbour(chain: ChainSpace, point: Point, rng: Random) -> Point:
    """Draw the settings of one node of `point` again; a random point of the chain where that hits a cut."""
    nodes = chain.space.nodes
    choices = [node for node, space in nodes.items() if space.count > 1]
    node = rng.choice(choices or [""])  # draws without a choice too: the same seed must give the same next draws
    if not node:
        return point
    changed = dict(point)
    changed[node] = nodes[node][rng.randrange(nodes[node].count)]
    near = {name: changed[name] for name in nodes if changed.get(name)}
    if chain.space.allows(near):
        return near
    return chain.space.random_sample(rng)
