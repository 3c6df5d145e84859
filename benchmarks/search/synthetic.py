"""Synthetic families of tables: stages of alternative passes with parameters, effects that multiply, interactions,
an accuracy constraint, failures, noise. Made from a seed, so they need not be stored."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from autoopt.search import ChainSpace
from autoopt.space import Boolean, Categorical, Integer, NodeSpace, Point, SearchSpace
from benchmarks.search.table import Row, Table

NOISE: Final = 0.01
FAILURES: Final = 0.03
TOLERANCE: Final = 0.02
"""Relative distance from the best of a good point, on tables that are left out."""
LIMIT: Final = 0.012
"""Loss of accuracy that the constraint allows."""


@dataclass(frozen=True)
class Family:
    """`stages`: number of alternatives in each stage (beside "skip" where `skip`). `values`: most points of a pass."""

    name: str
    stages: tuple[int, ...]
    chains: int
    points: int
    failures: float = FAILURES
    """Share of the points that fail."""


FAMILIES = (
    Family("S", (1, 2, 2), 6, 95),
    Family("M", (1, 2, 2, 3), 16, 850),
    Family("L", (2, 2, 3, 3), 40, 3600),
)


def make(family: Family, seed: int) -> Table:
    """One table of the family: the draw of chains that comes nearest to its number of points."""
    rng = Random(f"{family.name}:{seed}")
    chains = min((_chains(family, rng) for _ in range(40)), key=lambda cs: abs(_points(cs) - family.points))
    effects = Effects(rng, family.failures)
    rows = tuple(tuple(effects.row(chain, point) for point in chain.space.iterate()) for chain in chains)
    table = Table(f"{family.name}{seed}", chains, rows, NOISE)
    return table if math.isfinite(table.best) else make(family, seed + 1000)


def _stages(family: Family) -> list[list[str]]:
    return [[f"p{s}{a}" for a in range(number)] for s, number in enumerate(family.stages)]


def paths_of(family: Family) -> list[tuple[str, ...]]:
    """All paths of a family: an alternative of each stage, or none."""
    paths = itertools.product(*([*stage, ""] for stage in _stages(family)))
    return [path for path in (tuple(filter(None, path)) for path in paths) if path]


def _points(chains: tuple[ChainSpace, ...]) -> int:
    return sum(chain.space.count for chain in chains)


def _chains(family: Family, rng: Random) -> tuple[ChainSpace, ...]:
    paths = paths_of(family)
    spaces = {node: node_of(rng) for node in dict.fromkeys(itertools.chain(*_stages(family)))}
    kept = rng.sample(paths, family.chains)
    return tuple(
        ChainSpace(">".join(path), tuple((n, n) for n in path), SearchSpace({n: spaces[n] for n in path}))
        for path in sorted(kept)
    )


def node_of(rng: Random, parameters: Sequence[int] = (0, 1, 1, 2, 2)) -> NodeSpace:
    """The space of a pass with one of these numbers of parameters."""
    kinds = [Boolean(), Categorical("a", "b", "c"), Integer(1, 4), Categorical(16, 32, 64, 128), Boolean()]
    rng.shuffle(kinds)
    return NodeSpace({f"x{i}": kind for i, kind in enumerate(kinds[: rng.choice(parameters)])})


class Effect(NamedTuple):
    """What a pass, a value or a pair does, as the deviations of the draws for log latency and for accuracy."""

    token: str
    speed: float
    harm: float


def effects_in(chain: ChainSpace, point: Point) -> Iterator[Effect]:
    """The effects that make up a point; the last one is its own."""
    values = _values(point)
    yield from (Effect(node, 0.35, 0.006) for node in chain.nodes)
    yield from (Effect(value, 0.12, 0.004) for value in values)
    yield from (Effect(f"{a}&{b}", 0.10, 0.001) for a, b in itertools.combinations(chain.nodes, 2))
    yield from (Effect(f"{a}&{b}", 0.05, 0.001) for a, b in itertools.combinations(values, 2))
    yield Effect(f"{chain.id}{values}", 0.02, 0.0005)


def _values(point: Point) -> list[str]:
    return [f"{node}.{name}={json.dumps(value)}" for node, values in point.items() for name, value in values.items()]


class Effects:
    """Effects of passes, values and pairs of them on log latency and on accuracy; drawn when first met."""

    def __init__(self, rng: Random, failures: float) -> None:
        self._failures = failures
        self._rng = Random(rng.random())
        self._drawn: dict[str, tuple[float, float]] = {}

    def row(self, chain: ChainSpace, point: Point) -> Row:
        latency, drop, size = 0.0, 0.0, 0.0
        for effect in effects_in(chain, point):
            speed, harm = self._draw(effect.token)
            latency += effect.speed * speed
            drop += effect.harm * max(0.0, harm)
            size += 0.3 * effect.speed * harm
        failed = Random(f"{self._draw('failures')}{chain.id}{_values(point)}").random() < self._failures
        return Row((math.exp(latency),), drop - LIMIT, math.exp(size), failed) if not failed else Row(failed=True)

    def _draw(self, token: str) -> tuple[float, float]:
        if token not in self._drawn:
            self._drawn[token] = (self._rng.gauss(0, 1), self._rng.gauss(0, 1))
        return self._drawn[token]
