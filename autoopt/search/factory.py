"""Create a study, and the sampler in it, from a configuration."""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autoopt.errors import InputError
from autoopt.metrics import Objective
from autoopt.search.fixed_shares import FixedSharesSampler, has_fixed_shares, trial_shares
from autoopt.search.points import total_points
from autoopt.search.samplers.base import CreateSampler, Sampler, SamplerInputs
from autoopt.search.samplers.chain_parts import Groups, affordable, check_order, nesting, stages
from autoopt.search.samplers.per_chain import ALLOCATIONS, GroupedSampler, PerChainSampler, round_robin
from autoopt.search.study import Study
from autoopt.search.trial import ChainSpace, Cost
from autoopt.space import Point
from autoopt.spec.search import SearchConfig, find_sampler
from autoopt.tuning import STOPPING


def create_study(  # noqa: PLR0913  what a search depends on
    config: SearchConfig,
    chains: Sequence[ChainSpace],
    objectives: Sequence[Objective],
    *,
    cost: Cost | None = None,
    node_objectives: Mapping[str, Sequence[Objective]] | None = None,
    pruned: bool = False,
    apart: Collection[str] = (),
    source: str = "source",
    first: Sequence[tuple[str, Point]] = (),
) -> Study:
    """Create the study that `config` describes.

    Args:
        config: strategy, sampler, order and budget.
        chains: at least one.
        objectives: the first has priority.
        cost: tells which candidates are measured already, to choose among equally promising points.
        node_objectives: node id -> objectives of partial chains that end there, where they differ from `objectives`.
        pruned: chains were left out, so the order may name nodes that no chain has.
        apart: ids of chains that a unified search treats as a search of its own, with half of the trials.
        source: key of the candidate that every chain starts from.
        first: (chain id, point) that the sampler `surrogate` tries before all others, in this order.

    Raises:
        InputError: no chain or no objective, ids that repeat, a first or prior point outside its chain's space, or an
            order that does not fit the chains.
    """
    if not objectives:
        raise InputError("no objective", where="search")
    _check_chains(chains, first)
    check_order(config.parsed_order(), chains, known_nodes=not pruned)
    inputs = SamplerInputs(config, tuple(chains), tuple(objectives), 0, cost, first, node_objectives or {})
    return Study(config, chains, objectives, _sampler(inputs, source, apart), source)


def _check_chains(chains: Sequence[ChainSpace], first: Sequence[tuple[str, Point]]) -> None:
    if not chains:
        raise InputError("no chain to search", where="search")
    if len({chain.id for chain in chains}) < len(chains):
        raise InputError("two chains have the same id", where="search")
    for chain in chains:
        for point in chain.prior:
            chain.space.index(point)  # raises if the space does not hold it
    spaces = {chain.id: chain.space for chain in chains}
    for chain_id, point in first:
        if chain_id not in spaces:
            raise InputError(f"a first point is of the chain {chain_id}, which is not searched", where="search")
        spaces[chain_id].index(point)


def _sampler(inputs: SamplerInputs, source: str, apart: Collection[str]) -> Sampler:
    """The sampler over all chains."""
    config, chains = inputs.config, inputs.chains
    if has_fixed_shares(config):
        return FixedSharesSampler(config, _own_studies(inputs, source))
    together = [chain for chain in chains if chain.id not in apart]
    if config.strategy == "unified" and 0 < len(together) < len(chains):
        groups = [together, [chain for chain in chains if chain.id in apart]]
        half = config if config.trials is None else config.overridden({"trials": max(1, config.trials // 2)})
        return GroupedSampler(groups, [_of_chains(replace(inputs, config=half), group) for group in groups])
    return _of_chains(inputs, chains)


def _own_studies(inputs: SamplerInputs, source: str) -> dict[str, Study]:
    """A study for each chain with a share of the trials; those of the whole search limit its repeats."""
    config, studies = inputs.config, dict[str, Study]()
    shares = trial_shares(config, inputs.chains)
    for chain in inputs.chains:
        if shares[chain.id]:
            limited = config.with_replacement or shares[chain.id] < chain.space.count
            own = config.overridden({"trials": shares[chain.id] if limited else None})
            sampler = _of_chains(replace(inputs, config=own, node_objectives={}), [chain])
            studies[chain.id] = Study(own, [chain], inputs.objectives, sampler, source, most_repeats=config.trials)
    return studies


def _of_chains(inputs: SamplerInputs, chains: Sequence[ChainSpace]) -> Sampler:
    """The sampler over some of the chains."""
    points, trials = total_points(chains), inputs.config.trials
    inputs = replace(inputs, chains=tuple(chains), budget=min(trials or points, points) or 1)
    if inputs.config.strategy == "unified":
        return _leaf_sampler(inputs)
    create = _ChainSamplers(inputs).create
    return PerChainSampler(chains, create, ALLOCATIONS[inputs.config.allocation], inputs.budget, trials)


def _leaf_sampler(inputs: SamplerInputs) -> Sampler:
    """Create the sampler that the configuration names; its module is imported only here, because it may be heavy."""
    info = find_sampler(inputs.config.sampler_name)
    create: CreateSampler = pkgutil.resolve_name(f"autoopt.search.samplers.{info.implementation}")
    return create(inputs)


@dataclass(frozen=True)
class _ChainSamplers:
    """Creates the samplers of single chains, in the order that the configuration asks for."""

    inputs: SamplerInputs

    def create(self, chain: ChainSpace) -> Sampler:
        order = self.inputs.config.parsed_order()
        share = self._share(chain)
        if order.kind == "nested":
            groups = nesting(order, chain)
            if len(groups) == 1:
                return self._leaf(chain)
            return self._nested(share or chain.space.count, groups, chain)
        stage_list = stages(order, chain)
        budget = STOPPING.min_candidates * len(stage_list) if share is None else share
        stage_list = affordable(stage_list, chain, budget)
        stage_budget = max(1, budget // len(stage_list))
        if len(stage_list) == 1:
            return self._together(budget, stage_list[0].inner, [chain])
        from autoopt.search.samplers.staged import StagedSampler

        return StagedSampler(
            chain,
            [(stage.nodes, partial(self._together, stage_budget, stage.inner)) for stage in stage_list],
            keep=self.inputs.config.keep,
            budget=budget,
            objectives=self.inputs.objectives,
            node_objectives=self.inputs.node_objectives,
        )

    def _share(self, chain: ChainSpace) -> int | None:
        """Trials that a chain may count on; None if only time is limited."""
        config, chains = self.inputs.config, self.inputs.chains
        if config.trials is None:
            if config.minutes is not None:
                return None
            return total_points(chains)
        if config.allocation != "round_robin":
            return max(1, config.trials // len(chains))
        total = sum(max(0.0, each.weight) for each in chains)
        if total == 0:
            return 1
        return max(1, int(config.trials * max(0.0, chain.weight) / total))

    def _leaf(self, chain: ChainSpace) -> Sampler:
        return _leaf_sampler(replace(self.inputs, chains=(chain,), budget=chain.space.count))

    def _nested(self, budget: int, groups: Groups, chain: ChainSpace) -> Sampler:
        from autoopt.search.samplers.nested import NestedSampler

        level = partial(self._together, budget, ())
        return NestedSampler(chain, groups, level, budget=budget, objectives=self.inputs.objectives)

    def _together(self, budget: int, inner: Groups, parts: Sequence[ChainSpace]) -> Sampler:
        """Create one sampler over parts of a chain, which share the trials evenly."""
        create = self._leaf
        if inner:
            create = partial(self._nested, budget, inner)
        if len(parts) == 1:
            return create(parts[0])
        return PerChainSampler(parts, create, round_robin, budget)
