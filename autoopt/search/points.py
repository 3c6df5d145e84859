"""The points of chains: all of them where a space is small enough to enumerate, a sample where it is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from autoopt.search.history import History, steps_of
from autoopt.search.trial import ChainSpace, Feedback, point_key
from autoopt.space import Point
from autoopt.space.node_space import NodePoint, NodeSpace
from autoopt.tuning import SEARCH


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
            ValueError: more than `SEARCH.pool` points.
        """
        if total_points(chains) > SEARCH.pool:
            raise ValueError(f"more than {SEARCH.pool} points")
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
    chains: Sequence[ChainSpace], history: History, good: Sequence[tuple[str, Point]], rng: Random
) -> list[tuple[str, Point]]:
    """Draw new points of a large space: random ones from every chain alike, and mixtures of `good` points.

    Half of the mixtures are of the chains of the good points, half of any chain.
    """
    drawn: dict[str, tuple[str, Point]] = {}

    def add(chain: ChainSpace, point: Point) -> None:
        key = point_key(chain.nodes, point)
        if not history.has_key(key) and history.known(steps_of(chain.nodes, point)) is None:
            drawn.setdefault(key, (chain.id, point))

    nonempty = [chain for chain in chains if chain.space.count]
    for _ in range(SEARCH.random):
        chain = rng.choice(nonempty)
        add(chain, chain.space.random_sample(rng))
    good_chains = [history.by_id[chain_id] for chain_id, _ in good]
    settings: dict[str, list[tuple[NodeSpace, NodePoint]]] = {}
    for chain, (_, point) in zip(good_chains, good, strict=True):
        for node, space in chain.space.nodes.items():
            settings.setdefault(node, []).append((space, point.get(node, {})))
    for _ in range(SEARCH.mixed // 2):
        for mixed in (rng.choice(good_chains or nonempty), rng.choice(nonempty)):
            add(mixed, mixture(mixed, settings, rng))
    return list(drawn.values())


def mixture(chain: ChainSpace, settings: Mapping[str, Sequence[tuple[NodeSpace, NodePoint]]], rng: Random) -> Point:
    """Draw each node's settings from those of good points, and with `SEARCH.anew` one node's from all.

    `settings`: those of good points with their space, by node; the space of a node may differ between chains.
    A random point of the chain replaces one that is cut.
    """
    anew = rng.choice(chain.nodes) if rng.random() < SEARCH.anew else ""
    point: Point = {}
    for node, space in chain.space.nodes.items():
        values = space[rng.randrange(space.count)]
        if node in settings and node != anew:
            origin, known = rng.choice(settings[node])
            values = known if origin == space else values
        if values:
            point[node] = values
    if chain.space.allows(point):
        return point
    return chain.space.random_sample(rng)
