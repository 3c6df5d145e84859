"""Synthetic families of tables: stages of alternative passes with parameters, effects that multiply, interactions,
an accuracy constraint, failures, noise. Made from a seed, so they need not be stored."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from random import Random

from autoopt.search import ChainSpace
from autoopt.space import Boolean, Categorical, Integer, NodeSpace, SearchSpace
from benchmarks.search.table import Row, Table

NOISE = 0.01
FAILURES = 0.03


@dataclass(frozen=True)
class Family:
    """`stages`: number of alternatives in each stage (beside "skip" where `skip`). `values`: most points of a pass."""

    name: str
    stages: tuple[int, ...]
    chains: int
    points: int


FAMILIES = (
    Family("S", (1, 2, 2), 6, 95),
    Family("M", (1, 2, 2, 3), 16, 850),
    Family("L", (2, 2, 3, 3), 40, 3600),
)


def make(family: Family, seed: int) -> Table:
    """One table of the family: the draw of chains that comes nearest to its number of points."""
    rng = Random(f"{family.name}:{seed}")
    chains = min((_chains(family, rng) for _ in range(40)), key=lambda cs: abs(_points(cs) - family.points))
    effects = _Effects(rng)
    rows = tuple(tuple(effects.row(chain, point) for point in chain.space.iterate()) for chain in chains)
    table = Table(f"{family.name}{seed}", chains, rows, NOISE)
    return table if math.isfinite(table.best) else make(family, seed + 1000)


def _points(chains: tuple[ChainSpace, ...]) -> int:
    return sum(chain.space.count for chain in chains)


def _chains(family: Family, rng: Random) -> tuple[ChainSpace, ...]:
    stages = [[f"p{s}{a}" for a in range(number)] for s, number in enumerate(family.stages)]
    spaces = {node: _node(rng) for stage in stages for node in stage}
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


class _Effects:
    """Effects of passes, values and pairs of them on log latency and on accuracy; drawn when first met."""

    def __init__(self, rng: Random) -> None:
        self._rng = Random(rng.random())
        self._drawn: dict[str, tuple[float, float]] = {}

    def row(self, chain: ChainSpace, point: dict[str, dict[str, object]]) -> Row:
        values = [f"{n}.{k}={json.dumps(v)}" for n, settings in point.items() for k, v in settings.items()]
        latency, drop, size = 0.0, 0.0, 0.0
        for token, spread, harm in [
            *((node, 0.35, 0.006) for node in chain.nodes),
            *((value, 0.12, 0.004) for value in values),
            *((f"{a}&{b}", 0.10, 0.001) for a, b in itertools.combinations(chain.nodes, 2)),
            *((f"{a}&{b}", 0.05, 0.001) for a, b in itertools.combinations(values, 2)),
            (f"{chain.id}{values}", 0.02, 0.0005),
        ]:
            speed, harmed = self._draw(token)
            latency += spread * speed
            drop += harm * max(0.0, harmed)
            size += 0.3 * spread * harmed
        failed = Random(f"{self._draw('failures')}{chain.id}{values}").random() < FAILURES
        return Row((math.exp(latency),), drop - 0.012, math.exp(size), failed) if not failed else Row(failed=True)

    def _draw(self, token: str) -> tuple[float, float]:
        if token not in self._drawn:
            self._drawn[token] = (self._rng.gauss(0, 1), self._rng.gauss(0, 1))
        return self._drawn[token]
