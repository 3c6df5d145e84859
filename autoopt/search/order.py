"""The order in which a chain's passes are searched, as consecutive stages or nested groups of nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from autoopt.errors import InputError, did_you_mean
from autoopt.search.trial import ChainSpace
from autoopt.spec.order import Order

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
