"""From a configuration to a strategy: one list of the ways of searching. Light until one of them needs a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from autoopt.errors import InputError
from autoopt.metrics import Objective
from autoopt.search.config import SearchConfig
from autoopt.search.order import Groups, affordable, check_order, is_nested, nesting, stages
from autoopt.search.points import total_points
from autoopt.search.samplers.allocation import ALLOCATIONS, round_robin
from autoopt.search.samplers.base import Sampler
from autoopt.search.samplers.exhaustive import ExhaustiveSampler
from autoopt.search.samplers.nested import NestedSampler
from autoopt.search.samplers.per_chain import PerChainSampler
from autoopt.search.samplers.small_surrogate import SmallSurrogateSampler
from autoopt.search.samplers.staged import StagedSampler
from autoopt.search.samplers.uniform import RandomSampler
from autoopt.search.study import Study
from autoopt.search.trial import ChainSpace, Cost

LIGHT: Final = ("exhaustive", "random", "surrogate")
"""Samplers of our own; all others are Optuna's."""
SMALL: Final = 30
"""Spaces of at most so many points are gone through completely, without a numeric library."""
UNTIMED: Final = 10
"""Trials of a stage where a search is limited by time alone, which a strategy does not see; the last stage goes on."""


def create_study(
    config: SearchConfig,
    chains: Sequence[ChainSpace],
    objectives: Sequence[Objective],
    *,
    cost: Cost | None = None,
    node_objectives: Mapping[str, Sequence[Objective]] | None = None,
) -> Study:
    """The strategy that `config` describes, over `chains`, for `objectives` (the first has priority).

    `cost`: which candidates are known already, to choose among equals. `node_objectives`: by node id, what partial
    chains that end there are judged by, where that is not `objectives`.

    Raises:
        InputError: no chain or no objective, ids that repeat, a prior point that is not of its chain's space, a sampler
            or an order that cannot be used.
    """
    _check(chains, objectives)
    chooser = create_sampler(config, chains, objectives, cost=cost, node_objectives=node_objectives)
    return Study(config, chains, objectives, chooser)


def create_sampler(
    config: SearchConfig,
    chains: Sequence[ChainSpace],
    objectives: Sequence[Objective],
    *,
    cost: Cost | None = None,
    node_objectives: Mapping[str, Sequence[Objective]] | None = None,
) -> Sampler:
    """The chooser inside a strategy; see `create_study`."""
    points = total_points(chains)
    budget = min(config.trials or points, points) or 1
    if config.strategy == "unified":
        return _unified(config, chains, objectives, budget, cost)
    if config.sampler_name not in LIGHT:
        from autoopt.search.optuna_study.samplers import make_sampler

        make_sampler(config.sampler_name, config.seed)  # refuses what cannot be used before anything is tried
    check_order(config.order, chains)
    shares = {chain.id: _share(config, chain, chains) for chain in chains}

    def tuner(chain: ChainSpace) -> Sampler:
        return _ordered(config, objectives, cost, node_objectives or {}, shares[chain.id], chain)

    return PerChainSampler(chains, tuner, ALLOCATIONS[config.allocation], budget)


def _share(config: SearchConfig, chain: ChainSpace, chains: Sequence[ChainSpace]) -> int | None:
    """How many trials a chain may count on; None where only the time is limited."""
    if config.trials is None:
        return None if config.minutes is not None else total_points(chains)
    if config.allocation == "round_robin":
        whole = sum(max(0.0, each.weight) for each in chains)
        return max(1, int(config.trials * max(0.0, chain.weight) / whole)) if whole else 1
    return max(1, config.trials // len(chains))


def _ordered(
    config: SearchConfig,
    objectives: Sequence[Objective],
    cost: Cost | None,
    node_objectives: Mapping[str, Sequence[Objective]],
    share: int | None,
    chain: ChainSpace,
) -> Sampler:
    """What searches one chain, in the order asked for."""
    tuner = partial(_tuner, config, objectives, cost)

    def nested(budget: int, groups: Groups, part: ChainSpace) -> Sampler:
        return NestedSampler(part, groups, partial(together, budget, ()), budget=budget, objectives=objectives)

    def together(budget: int, inner: Groups, parts: Sequence[ChainSpace]) -> Sampler:
        one = partial(nested, budget, inner) if inner else tuner
        return one(parts[0]) if len(parts) == 1 else PerChainSampler(parts, one, round_robin, budget)

    if is_nested(config.order):
        groups = nesting(config.order, chain)
        return nested(share or chain.space.count, groups, chain) if len(groups) > 1 else tuner(chain)
    found = stages(config.order, chain)
    budget = share if share is not None else UNTIMED * len(found)
    found = affordable(found, chain, budget)
    each = max(1, budget // len(found))
    if len(found) == 1:
        return together(budget, found[0].inner, [chain])
    return StagedSampler(
        chain,
        [stage.nodes for stage in found],
        [partial(together, each, stage.inner) for stage in found],
        keep=config.keep,
        budget=budget,
        objectives=objectives,
        node_objectives=node_objectives,
    )


def _unified(
    config: SearchConfig, chains: Sequence[ChainSpace], objectives: Sequence[Objective], budget: int, cost: Cost | None
) -> Sampler:
    if config.sampler_name == "tpe":
        from autoopt.search.samplers.optuna_sampler import OptunaSampler

        return OptunaSampler(chains, "tpe", config.seed, objectives)
    if total_points(chains) <= SMALL:
        return SmallSurrogateSampler(chains, seed=config.seed, threshold=config.min_expected_improvement, cost=cost)
    from autoopt.search.samplers.surrogate import SurrogateSampler

    return SurrogateSampler(
        chains, budget=budget, seed=config.seed, threshold=config.min_expected_improvement, cost=cost
    )


def _tuner(config: SearchConfig, objectives: Sequence[Objective], cost: Cost | None, chain: ChainSpace) -> Sampler:
    """What searches one chain."""
    if config.sampler_name == "exhaustive":
        return ExhaustiveSampler(chain)
    if config.sampler_name == "random":
        return RandomSampler(chain, replacement=config.with_replacement)
    if config.sampler_name == "surrogate":
        return _unified(config, [chain], objectives, chain.space.count, cost)
    from autoopt.search.samplers.optuna_sampler import OptunaSampler

    return OptunaSampler([chain], config.sampler_name, config.seed, objectives)


def _check(chains: Sequence[ChainSpace], objectives: Sequence[Objective]) -> None:
    if not chains:
        raise InputError("no chain to search", where="search")
    if not objectives:
        raise InputError("no objective", where="search")
    ids = [chain.id for chain in chains]
    if len(set(ids)) < len(ids):
        raise InputError("two chains have one id", where="search")
    for chain in chains:
        for point in chain.prior:
            chain.space.index(point)
