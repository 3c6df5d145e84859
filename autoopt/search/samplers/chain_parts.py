"""Parts of a chain: its nodes in stages or nested groups, and a search over a part with a history of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from autoopt.errors import InputError, did_you_mean
from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.points import total_points
from autoopt.search.samplers.base import Decision, Sampler
from autoopt.search.trial import ChainSpace, Feedback, Proposal
from autoopt.space import Point, SearchSpace, matches
from autoopt.spec.search import Order

Groups: TypeAlias = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Stage:
    """Consecutive nodes of a chain that are searched together.

    With more than one group, `inner` holds how they nest, outermost first.
    """

    nodes: tuple[str, ...]
    inner: Groups = ()


def check_order(order: Order, chains: Sequence[ChainSpace], *, known_nodes: bool = True) -> None:
    """Check that every chain can be searched in this order.

    Raises:
        InputError: the order contradicts that of a chain, or (with `known_nodes`) names a node that no chain has.
    """
    known = {node for chain in chains for node in chain.nodes}
    for name in order.mentions():
        if known_nodes and name not in known:
            remedy = did_you_mean(name, known)
            raise InputError(f"no chain has the node {name!r}", where="search.order", remedy=remedy)
    for chain in chains:
        stages(order, chain)


def stages(order: Order, chain: ChainSpace) -> tuple[Stage, ...]:
    """Divide the chain's nodes into consecutive stages.

    Nodes that no group names join the group of the next node that one names, or the last group.

    Raises:
        InputError: the groups contradict the order of the chain's nodes.
    """
    if order.kind == "pass-by-pass":
        return tuple(Stage((node,)) for node in chain.nodes)
    stage_of = order.stage_of()
    nodes_of: dict[int, list[str]] = {}
    waiting: list[str] = []
    for node in chain.nodes:
        waiting.append(node)
        if node not in stage_of:
            continue
        index = stage_of[node]
        last = max(nodes_of, default=0)
        if index < last:
            before = nodes_of[last][-1]
            raise InputError(f"{node!r} comes before {before!r} here, and after it in a chain", where="search.order")
        nodes_of.setdefault(index, []).extend(waiting)
        waiting = []
    if not nodes_of:
        return (Stage(chain.nodes),)
    nodes_of[max(nodes_of)].extend(waiting)
    stage_list = []
    for index, nodes in nodes_of.items():
        inner = _nest(order.groups[index].levels, nodes)
        stage_list.append(Stage(tuple(nodes), inner if len(inner) > 1 else ()))
    return tuple(stage_list)


def nesting(order: Order, chain: ChainSpace) -> Groups:
    """List the chain's nodes from the outermost group to the innermost; nodes that no group names are innermost."""
    return _nest([group.nodes for group in order.groups], chain.nodes)


def affordable(stage_list: Sequence[Stage], chain: ChainSpace, trials: int) -> tuple[Stage, ...]:
    """Merge the last stages if there are more with a choice than `trials`.

    Each stage with a choice needs a trial, and a search that ends before its last stage has tried no whole chain.
    """
    merged = list(stage_list)
    while len(merged) > 1:
        points = [math.prod(chain.space.nodes[node].count for node in stage.nodes) for stage in merged[:-1]]
        if 1 + sum(count > 1 for count in points) <= trials:
            break
        merged[-2:] = [Stage((*merged[-2].nodes, *merged[-1].nodes))]
    return tuple(merged)


def _nest(levels: Sequence[Sequence[str]], nodes: Sequence[str]) -> Groups:
    """Restrict `levels` to `nodes`, each level in chain order; the innermost also takes the nodes that none names."""
    groups = []
    innermost = set(nodes)
    for level in levels:
        group = tuple(node for node in nodes if node in level)
        if group:
            groups.append(group)
            innermost.difference_update(group)
    if groups:
        innermost.update(groups.pop())
    return (*groups, tuple(node for node in nodes if node in innermost))


def restrict_point(point: Point, nodes: Sequence[str]) -> Point:
    """Keep the settings of `nodes` only."""
    return {node: values for node, values in point.items() if node in nodes}


def restrict_chain(chain: ChainSpace, nodes: Sequence[str], fixed: Point, name: str) -> ChainSpace:
    """Restrict a chain to the search over `nodes`, with the settings of the other nodes `fixed`.

    Cuts that concern other nodes than `nodes` and those in `fixed` do not apply here: they apply where those nodes are
    searched.
    """
    cuts = []
    for cut in chain.space.cuts:
        elsewhere = {node: values for node, values in cut.items() if node not in nodes}
        if matches(fixed, elsewhere):
            cuts.append(restrict_point(cut, nodes))
    space = SearchSpace({node: chain.space.nodes[node] for node in nodes}, tuple(cuts))
    # A first pass that no chain has keeps equal points of parts with different starts apart.
    start = (f"start {name}", "start")
    passes = [(node, pass_name) for node, pass_name in chain.passes if node in nodes]
    prior = []
    for point in chain.prior:
        part = restrict_point(point, nodes)
        if space.allows(part):
            prior.append(part)
    return ChainSpace(name, (start, *passes), space, prior=tuple(prior))


def join_points(chain: ChainSpace, start: Point, point: Point) -> Point:
    """Combine points of two parts of a chain, in chain order."""
    settings = {**start, **point}
    return {node: settings[node] for node in chain.nodes if node in settings}


class SubspaceSampler:
    """A sampler over parts of chains. `follow` updates its history from that of the whole search."""

    def __init__(self, parts: Sequence[ChainSpace], objectives: Sequence[Objective], sampler: Sampler) -> None:
        self.history = History(parts, objectives)
        self.count = total_points(parts)
        self._sampler = sampler

    def follow(self, trials: Sequence[tuple[str, Point, Feedback | None]]) -> None:
        """Add what is new in `trials`: all (part, point, feedback) so far, in a stable order."""
        for number, (part, point, feedback) in enumerate(trials):
            if number == len(self.history.trials):
                self.history.add(Proposal(number, part, point))
            if feedback is not None and self.history.trials[number].feedback is None:
                self.history.tell(number, feedback)

    @property
    def exhausted(self) -> bool:
        """True once every point of every part was asked."""
        return len(self.history.trials) >= self.count

    def next(self, rng: Random) -> Decision:
        """Return the next thing to try, in terms of the parts."""
        return self._sampler.next(self.history, rng)
