"""Spaces of about a million points, which are sampled: the result of a point is computed when it is asked for."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from random import Random

from autoopt.search import ChainSpace, SearchConfig, create_study
from autoopt.search.points import total_points
from autoopt.search.trial import Feedback
from autoopt.space import Boolean, Categorical, Integer, NodeSpace, SearchSpace
from benchmarks.search.synthetic import NOISE, Effects, Family, paths_of
from benchmarks.search.table import OBJECTIVE

FAMILY = Family("XL", (2, 2, 3, 3), 40, 1_000_000, failures=0.0)
SHOWN = (30, 60, 90)
"""Evaluations after which the best result counts."""


def chains_of(seed: int) -> tuple[ChainSpace, ...]:
    """The chains of a space: passes with three or four parameters each."""
    rng = Random(f"XL:{seed}")
    nodes = {node for path in paths_of(FAMILY) for node in path}
    spaces = {node: _node(rng) for node in sorted(nodes)}
    chains: list[ChainSpace] = []
    for path in sorted(rng.sample(paths_of(FAMILY), FAMILY.chains)):
        space = SearchSpace({node: spaces[node] for node in path})
        chains.append(ChainSpace(">".join(path), tuple((node, node) for node in path), space))
    return tuple(chains)


def _node(rng: Random) -> NodeSpace:
    kinds = [Boolean(), Categorical("a", "b", "c"), Integer(1, 4), Categorical(16, 32, 64, 128), Boolean()]
    rng.shuffle(kinds)
    return NodeSpace({f"x{number}": kind for number, kind in enumerate(kinds[: rng.choice((3, 4))])})


def replay(seed: int) -> list[float]:
    """The logarithm of the best latency that meets the limit after each evaluation."""
    chains = chains_of(seed)
    effects, noise = Effects(Random(f"XL:effects:{seed}"), FAMILY.failures), Random(f"noise:{seed}")
    by_id = {chain.id: chain for chain in chains}
    config = SearchConfig(seed=seed, trials=SHOWN[-1], stop_early=False)
    study = create_study(config, chains, (OBJECTIVE,))
    best, curve = math.inf, list[float]()
    while proposals := study.ask(1):
        (proposal,) = proposals
        row = effects.row(by_id[proposal.chain], proposal.point)
        values = {"latency": row.value * math.exp(noise.gauss(0, NOISE))} if row.feasible else {}
        study.tell(proposal.number, Feedback(values, row.violation))
        if row.feasible:
            best = min(best, math.log(row.value))
        curve.append(best)
    return curve


def markdown(seeds: Sequence[int], curves: Sequence[Sequence[float]]) -> str:
    """The mean over the spaces of the best latency so far, in units of that after the last evaluation of each."""
    lines = ["| spaces | points, median | " + " | ".join(f"best after {count}" for count in SHOWN) + " |"]
    lines.append("|---" * (2 + len(SHOWN)) + "|")
    points = statistics.median(total_points(chains_of(seed)) for seed in seeds)
    means = [math.exp(statistics.fmean(curve[count - 1] for curve in curves)) for count in SHOWN]
    lines.append(f"| {len(curves)} | {points:g} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |")
    return "\n".join(lines) + "\n"
