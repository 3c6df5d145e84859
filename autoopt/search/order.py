"""The order in which a chain's passes are searched, as groups of nodes. Light."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autoopt.errors import InputError, did_you_mean
from autoopt.search.config import JOINT, PASS_BY_PASS
from autoopt.search.trial import ChainSpace

Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Stage:
    """Consecutive nodes of a chain that are searched together; by nesting `inner`, outermost first, where that is
    more than one group."""

    nodes: tuple[str, ...]
    inner: Groups = ()


def is_nested(order: Any) -> bool:
    return isinstance(order, dict)


def named_groups(order: Any) -> Groups:
    """The groups that the user wrote; none for `joint` and `pass-by-pass`.

    Raises:
        InputError: malformed.
    """
    if isinstance(order, str):
        if order not in (JOINT, PASS_BY_PASS):
            raise InputError(
                f"unknown order {order!r}", where="search", remedy=did_you_mean(order, (JOINT, PASS_BY_PASS))
            )
        return ()
    groups = tuple(_names(item) for item in _items(order))
    names = [name for group in groups for name in group]
    if not all(isinstance(name, str) for name in names) or not all(groups):
        raise InputError("order must name nodes, singly or in groups", where="search")
    if len(set(names)) < len(names):
        raise InputError("order names a node twice", where="search")
    return groups


def _items(order: Any) -> list[Any]:
    """The groups of an order or of a nested group, as written."""
    if isinstance(order, dict):
        if set(order) != {"nested"}:
            raise InputError("order must be a list of groups or {nested: [...]}", where="search")
        order = order["nested"]
    if not isinstance(order, (list, tuple)) or not order:
        raise InputError("order must be a list of groups", where="search")
    return list(order)


def _names(item: Any) -> tuple[Any, ...]:
    if isinstance(item, dict):
        return tuple(name for inner in _items(item) for name in _names(inner))
    return tuple(item) if isinstance(item, (list, tuple)) else (item,)


def check_order(order: Any, chains: Sequence[ChainSpace]) -> None:
    """Whether every chain can be searched in that order.

    Raises:
        InputError: malformed, names a node that no chain has, or stages that run against the order of a chain.
    """
    known = {node for chain in chains for node in chain.nodes}
    for group in named_groups(order):
        for name in group:
            if name not in known:
                raise InputError(
                    f"order names {name!r}, which no chain has", where="search", remedy=did_you_mean(name, known)
                )
    for chain in chains:
        if not is_nested(order):
            stages(order, chain)


def stages(order: Any, chain: ChainSpace) -> tuple[Stage, ...]:
    """The chain's nodes in consecutive stages; nodes that no group names go with the group that follows, or the last.

    Raises:
        InputError: the groups run against the order of the chain's nodes.
    """
    if order == JOINT:
        return (Stage(chain.nodes),)
    if order == PASS_BY_PASS:
        return tuple(Stage((node,)) for node in chain.nodes)
    place = {name: i for i, group in enumerate(named_groups(order)) for name in group}
    found: list[tuple[int, list[str]]] = []
    waiting: list[str] = []
    for node in chain.nodes:
        waiting.append(node)
        if node not in place:
            continue
        if found and place[node] < found[-1][0]:
            raise InputError(f"order puts {node!r} before {found[-1][1][-1]!r}, the chain after it", where="search")
        if found and place[node] == found[-1][0]:
            found[-1][1].extend(waiting)
        else:
            found.append((place[node], waiting))
        waiting = []
    if not found:
        return (Stage(chain.nodes),)
    found[-1][1].extend(waiting)
    written = _items(order)
    return tuple(Stage(tuple(nodes), _inner(written[index], nodes)) for index, nodes in found)


def nesting(order: Any, chain: ChainSpace) -> Groups:
    """The chain's nodes from the outermost group to the innermost; nodes that no group names are innermost."""
    return _nested(_items(order), chain.nodes)


def _inner(item: Any, nodes: Sequence[str]) -> Groups:
    """How a group as written nests these nodes; nothing where it does not."""
    groups = _nested(_items(item), nodes) if isinstance(item, dict) else ()
    return groups if len(groups) > 1 else ()


def _nested(items: Sequence[Any], nodes: Sequence[str]) -> Groups:
    groups = [[node for node in _names(item) if node in nodes] for item in items]
    named = {node for group in groups for node in group}
    groups = [group for group in groups if group] or [[]]
    groups[-1].extend(node for node in nodes if node not in named)
    in_order = {node: place for place, node in enumerate(nodes)}
    return tuple(tuple(sorted(group, key=in_order.__getitem__)) for group in groups)


def affordable(found: Sequence[Stage], chain: ChainSpace, trials: int) -> tuple[Stage, ...]:
    """The stages, the last ones together where there are more with a choice than `trials`: each of them needs a trial,
    and a search that ends before its last stage has no whole chain to show."""
    kept = list(found)
    while len(kept) > 1 and 1 + sum(_chooses(stage, chain) for stage in kept[:-1]) > trials:
        kept[-2:] = [Stage((*kept[-2].nodes, *kept[-1].nodes))]
    return tuple(kept)


def _chooses(stage: Stage, chain: ChainSpace) -> bool:
    return math.prod(chain.space.nodes[node].count for node in stage.nodes) > 1
