"""The three ways to write the pass graph: `chains:`, `stages:`, `edges:`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from autoopt.spec.source import FieldError, Place

NodeId: TypeAlias = str
Chains: TypeAlias = tuple[tuple[NodeId, ...], ...]
Stages: TypeAlias = tuple[tuple[NodeId | None, ...], ...]
"""Alternatives per stage; None is "skip"."""

_ARROW = re.compile("-+>")  # also Mermaid's


def read_chains(value: Any) -> Chains:
    """Pass lists.

    Raises:
        FieldError: not a list of lists of node ids, or a node twice in one of them.
    """
    items = _items(value, "lists of node ids")
    if all(isinstance(item, str) and "->" not in item for item in items):
        raise FieldError("must be a list of lists", remedy=f"write [[{', '.join(items)}]] for one chain")
    return _paths(items)


def _paths(items: list[Any]) -> Chains:
    chains = []
    for index, item in enumerate(items):
        chain = _path(item, (index,))
        _no_repeat(chain, (index,))
        chains.append(chain)
    return tuple(chains)


def read_edges(value: Any) -> Chains:
    """Paths `a -> b -> c` or `[a, b]`, whose steps are the edges.

    Raises:
        FieldError: malformed, or a node twice in a path.
    """
    return _paths(_items(value, "edges"))


def read_stages(value: Any) -> Stages:
    """Alternatives per stage.

    Raises:
        FieldError: not node ids, an empty stage, or a node twice.
    """
    stages: list[tuple[NodeId | None, ...]] = []
    seen: dict[str, int] = {}
    for index, item in enumerate(_items(value, "stages")):
        options = item if isinstance(item, list) else [item]
        if not options:
            raise FieldError("has no alternative", place=(index,), remedy="write ~ for none, or remove the stage")
        stage: dict[NodeId | None, None] = {}
        for position, option in enumerate(options):
            place: Place = (index, position) if isinstance(item, list) else (index,)
            node = None if option is None else _node(option, place)
            if node is not None and node in seen:
                remedy = "make a second node with the same pass"
                raise FieldError(f"node {node!r} is in stage {seen[node] + 1} already", place=place, remedy=remedy)
            if node is not None:
                seen[node] = index
            stage[node] = None
        stages.append(tuple(stage))
    if not seen:
        raise FieldError("has no passes")
    return tuple(stages)


def places(kind: str, value: Any) -> Iterator[tuple[NodeId, Place]]:
    """Every mention of a node in a graph as written, with its place."""
    for index, item in enumerate(value):
        if isinstance(item, str) and kind != "stages":
            yield from ((part.strip(), (kind, index)) for part in _ARROW.split(item))
        elif isinstance(item, str):
            yield item, (kind, index)
        elif item is not None:
            yield from ((node, (kind, index, i)) for i, node in enumerate(item) if node is not None)


def _items(value: Any, what: str) -> list[Any]:
    if isinstance(value, tuple):
        value = [list(v) if isinstance(v, tuple) else v for v in value]
    if not isinstance(value, list):
        raise FieldError(f"must be a list of {what}")
    if not value:
        raise FieldError("is empty", remedy="name at least one pass")
    return value


def _path(item: Any, place: Place) -> tuple[NodeId, ...]:
    if isinstance(item, str):
        return tuple(_node(part.strip(), place) for part in _ARROW.split(item))
    if not isinstance(item, list):
        raise FieldError(f"must be a list of node ids or 'a -> b', not {item!r}", place=place)
    if not item:
        raise FieldError("is empty", place=place, remedy="name at least one pass")
    return tuple(_node(node, (*place, i)) for i, node in enumerate(item))


def _node(value: Any, place: Place) -> NodeId:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise FieldError(
            f"must be a node id, not the number {value!r}", place=place, remedy=f"write '{value}' in quotes"
        )
    if not isinstance(value, str) or not value:
        raise FieldError(f"must be a node id, not {value!r}", place=place)
    return value


def _no_repeat(chain: tuple[NodeId, ...], place: Place) -> None:
    seen: set[NodeId] = set()
    for node in chain:
        if node in seen:
            remedy = "make a second node with the same pass"
            raise FieldError(f"node {node!r} is in it twice: {' -> '.join(chain)}", place=place, remedy=remedy)
        seen.add(node)
