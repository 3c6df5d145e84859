"""Spaces of about a million points, which are sampled: the result of a point is computed when it is asked for."""

from __future__ import annotations

import math
from random import Random
from typing import Final

from autoopt.search import ChainSpace, SearchConfig, create_study
from autoopt.search.trial import Feedback
from autoopt.space import SearchSpace
from benchmarks.search.simulate import SHIPPED
from benchmarks.search.synthetic import NOISE, Effects, Family, node_of, paths_of
from benchmarks.search.table import OBJECTIVE

FAMILY: Final = Family("XL", (2, 2, 3, 3), 40, 1_000_000, failures=0.0)
TRIALS: Final = 90


def chains_of(seed: int) -> tuple[ChainSpace, ...]:
    """The chains of a space: passes with two or three parameters each."""
    rng = Random(f"XL:{seed}")
    paths = paths_of(FAMILY)
    spaces = {node: node_of(rng, (2, 2, 3)) for node in sorted({node for path in paths for node in path})}
    chains: list[ChainSpace] = []
    for path in sorted(rng.sample(paths, FAMILY.chains)):
        space = SearchSpace({node: spaces[node] for node in path})
        chains.append(ChainSpace(">".join(path), tuple((node, node) for node in path), space))
    return tuple(chains)


def best_after(seed: int, trials: int = TRIALS) -> float:
    """The best latency that meets the limit after some evaluations."""
    chains = chains_of(seed)
    effects, noise = Effects(Random(f"XL:effects:{seed}"), FAMILY.failures), Random(f"noise:{seed}")
    by_id = {chain.id: chain for chain in chains}
    config = SearchConfig(seed=seed, trials=SHIPPED, stop_early=False)
    study = create_study(config, chains, (OBJECTIVE,))
    study.config = config.overridden({"trials": trials})
    best = math.inf
    while proposals := study.ask(1):
        (proposal,) = proposals
        row = effects.row(by_id[proposal.chain], proposal.point)
        values = {"latency": row.value * math.exp(noise.gauss(0, NOISE))} if row.feasible else {}
        study.tell(proposal.number, Feedback(values, row.violation))
        if row.feasible:
            best = min(best, row.value)
    return best
