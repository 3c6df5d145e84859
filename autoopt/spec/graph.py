"""The three ways to write the pass graph: `chains:`, `stages:`, `edges:`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

from autoopt.spec.source import FieldError, FieldMistakes, Place

GraphKind: TypeAlias = Literal["chains", "stages", "edges"]
NodeId: TypeAlias = str
Chains: TypeAlias = tuple[tuple[NodeId, ...], ...]
Stages: TypeAlias = tuple[tuple[NodeId | None, ...], ...]
"""Alternatives of each stage; None is "skip"."""

_ARROW: Final = re.compile("-+>")  # also Mermaid's
_TWICE: Final = "make a second node with the same pass"


def read_chains(value: object) -> Chains:
    """Read pass lists.

    Raises:
        FieldError: not a list of lists of node ids, or a node twice in one of them; `FieldErrors` for several mistakes.
    """
    items = _items(value, "lists of node ids")
    texts = [item for item in items if isinstance(item, str) and "->" not in item]
    if len(texts) == len(items):
        raise FieldError("must be a list of lists", remedy=f"write [[{', '.join(texts)}]] for one chain")
    return _read_paths(items)


def read_edges(value: object) -> Chains:
    """Read paths `a -> b -> c` or `[a, b]`, whose steps are the edges.

    Raises:
        FieldError: malformed, or a node twice in a path; `FieldErrors` for several mistakes.
    """
    return _read_paths(_items(value, "edges"))


def read_stages(value: object) -> Stages:
    """Read the alternatives of each stage.

    Raises:
        FieldError: not node ids, an empty stage, or a node twice; `FieldErrors` for several mistakes.
    """
    stages: list[tuple[NodeId | None, ...]] = []
    stage_of: dict[str, int] = {}
    mistakes = FieldMistakes()
    for index, item in enumerate(_items(value, "stages")):
        with mistakes.below(index):
            if item == []:
                raise FieldError("has no alternative", remedy="write ~ for none, or remove the stage")
            stages.append(_read_stage(index, item, stage_of))
    mistakes.raise_all()
    if not stage_of:
        raise FieldError("has no passes")
    return tuple(stages)


def _read_stage(index: int, item: object, stage_of: dict[str, int]) -> tuple[NodeId | None, ...]:
    """Read one stage, and add its nodes to the map from nodes to stages."""
    stage: list[NodeId | None] = []
    mistakes = FieldMistakes()
    options: list[tuple[Place, object]] = [((), item)]
    if isinstance(item, list):
        options = [((position,), option) for position, option in enumerate(item)]
    for place, option in options:
        with mistakes.below(*place):
            node = None
            if option is not None:
                node = _read_node(option)
                if node in stage_of:
                    reason = f"node {node!r} is in stage {stage_of[node] + 1} already"
                    raise FieldError(reason, remedy=_TWICE)
                stage_of[node] = index
            stage.append(node)
    mistakes.raise_all()
    return tuple(dict.fromkeys(stage))


def mentions(kind: GraphKind, graph: Chains | Stages) -> Iterator[tuple[NodeId, Place]]:
    """Yield every mention of a node in a graph, with its place."""
    for index, item in enumerate(graph):
        for position, node in enumerate(item):
            if node is not None:
                yield node, (kind, index, position)


def _items(value: object, what: str) -> list[object]:
    if isinstance(value, tuple):
        value = [list(item) if isinstance(item, tuple) else item for item in value]
    if not isinstance(value, list):
        raise FieldError(f"must be a list of {what}")
    if not value:
        raise FieldError("is empty", remedy="name at least one pass")
    return value


def _read_paths(items: Sequence[object]) -> Chains:
    paths = []
    mistakes = FieldMistakes()
    for index, item in enumerate(items):
        with mistakes.below(index):
            path = _read_path(item)
            for position, node in enumerate(path):
                if node in path[:position]:
                    raise FieldError(f"node {node!r} is in it twice: {' -> '.join(path)}", remedy=_TWICE)
            paths.append(path)
    mistakes.raise_all()
    return tuple(paths)


def _read_path(item: object) -> tuple[NodeId, ...]:
    if isinstance(item, str):
        return tuple(_read_node(part.strip()) for part in _ARROW.split(item))
    if not isinstance(item, list):
        raise FieldError(f"must be a list of node ids or 'a -> b', not {item!r}")
    if not item:
        raise FieldError("is empty", remedy="name at least one pass")
    nodes = []
    mistakes = FieldMistakes()
    for position, node in enumerate(item):
        with mistakes.below(position):
            nodes.append(_read_node(node))
    mistakes.raise_all()
    return tuple(nodes)


def _read_node(value: object) -> NodeId:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise FieldError(f"must be a node id, not the number {value!r}", remedy=f"write '{value}' in quotes")
    if not isinstance(value, str) or not value:
        raise FieldError(f"must be a node id, not {value!r}")
    return value
