"""Synthetic families of tables: stages of alternative passes with parameters, effects that multiply, interactions,
an accuracy constraint, failures, noise. Made from a seed, so they need not be stored."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Final, NamedTuple

from autoopt.search import ChainSpace, Feedback
from autoopt.space import Boolean, Categorical, Integer, NodeSpace, Point, SearchSpace
from benchmarks.search.descents import chain_terms
from benchmarks.search.table import Row, Table

NOISE: Final = 0.01
FAILURES: Final = 0.03
TOLERANCE: Final = 0.02
"""Relative distance from the best of a good point, on tables that are left out."""
LIMIT: Final = 0.012
"""Loss of accuracy that the constraint allows."""
STARTS: Final = 6
"""Descents in each chain of a large space; the lowest of all of them counts as the best point."""


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
LARGE: Final = Family("large", (2, 2, 3, 3), 40, 1_000_000)


def make(family: Family, seed: int) -> Table:
    """One table of the family: the draw of chains that comes nearest to its number of points."""
    rng = Random(f"{family.name}:{seed}")
    chains = min((_chains(family, rng) for _ in range(40)), key=lambda cs: abs(_points(cs) - family.points))
    effects = _Effects(rng, family.failures)
    rows = tuple(tuple(effects.row(chain, point) for point in chain.space.iterate()) for chain in chains)
    table = Table(f"{family.name}{seed}", chains, rows, NOISE)
    return table if math.isfinite(table.best) else make(family, seed + 1000)


def _points(chains: tuple[ChainSpace, ...]) -> int:
    return sum(chain.space.count for chain in chains)


def _chains(family: Family, rng: Random) -> tuple[ChainSpace, ...]:
    node_of = _large_node if family is LARGE else _node
    stages = [[f"p{s}{a}" for a in range(number)] for s, number in enumerate(family.stages)]
    spaces = {node: node_of(rng) for stage in stages for node in stage}
    paths = [tuple(n for n in path if n) for path in itertools.product(*([*stage, ""] for stage in stages))]
    kept = rng.sample([path for path in paths if path], family.chains)
    return tuple(
        ChainSpace(">".join(path), tuple((n, n) for n in path), SearchSpace({n: spaces[n] for n in path}))
        for path in sorted(kept)
    )


def _node(rng: Random) -> NodeSpace:
    kinds = [Boolean(), Categorical("a", "b", "c"), Integer(1, 4), Categorical(16, 32, 64, 128), Boolean()]
    rng.shuffle(kinds)
    return NodeSpace({f"x{i}": kind for i, kind in enumerate(kinds[: rng.choice((0, 1, 1, 2, 2))])})


def _large_node(rng: Random) -> NodeSpace:
    kinds = [Boolean(), Categorical("a", "b", "c"), Boolean(), Integer(1, 2)]
    return NodeSpace({f"x{i}": kind for i, kind in enumerate(kinds[: rng.choice((3, 4))])})


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


class _Effects:
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


class Landscape:
    """A space that is too large for a table: the result of a point is computed when it is asked for.

    Effects of passes, of values and of pairs of them multiply. Nothing fails, and there is no constraint.
    """

    def __init__(self, family: Family, seed: int) -> None:
        self._seed = seed
        rng = Random(f"{family.name}:{seed}")
        draws = [_chains(family, rng) for _ in range(40)]
        self.chains = min(draws, key=lambda chains: abs(_points(chains) - family.points))
        self._by_id = {chain.id: chain for chain in self.chains}
        self._effects: dict[tuple[str, str], float] = {}

    @staticmethod
    def large(seed: int) -> Landscape:
        """About a million points in 40 chains."""
        return Landscape(LARGE, seed)

    def row(self, chain: str, point: Point) -> Row:
        """The exact result of a point."""
        values = [f"{node}.{name}={value}" for node, params in point.items() for name, value in params.items()]
        log_latency = self._of_nodes(self._by_id[chain])
        log_latency += sum(map(self._of_value, values))
        log_latency += sum(itertools.starmap(self._of_values, itertools.combinations(values, 2)))
        return Row((math.exp(log_latency),))

    def measure(self, chain: str, point: Point, rng: Random) -> Feedback:
        """One noisy measurement."""
        return Feedback({"latency": self.row(chain, point).value * math.exp(rng.gauss(0, NOISE))})

    @cached_property
    def best(self) -> float:
        """The lowest latency that descents along single nodes reach."""
        rng = Random(f"descents:{self._seed}")
        return math.exp(min(self._lowest(chain, rng) for chain in self.chains))

    def _lowest(self, chain: ChainSpace, rng: Random) -> float:
        """The lowest log latency that descents in one chain reach."""
        terms = chain_terms(chain, self._of_nodes(chain), self._of_value, self._of_values)
        return min(terms.descend(terms.random_start(chain, rng)) for _ in range(STARTS))

    def _of_nodes(self, chain: ChainSpace) -> float:
        single = sum(0.35 * self._effect(node) for node in chain.nodes)
        return single + sum(0.10 * self._effect(*pair) for pair in itertools.combinations(chain.nodes, 2))

    def _of_value(self, value: str) -> float:
        return 0.12 * self._effect(value)

    def _of_values(self, first: str, second: str) -> float:
        return 0.05 * self._effect(first, second)

    def _effect(self, *tokens: str) -> float:
        """The effect of a pass, a value or a pair, which does not depend on what was asked for before."""
        first, second = tokens[0], tokens[-1]
        if (first, second) not in self._effects:
            self._effects[first, second] = Random(f"{self._seed}:{first}&{second}").gauss(0, 1)
        return self._effects[first, second]
