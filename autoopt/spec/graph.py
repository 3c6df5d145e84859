"""The three ways to write the pass graph: `chains:`, `stages:`, `edges:`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from autoopt.spec.source import FieldError, FieldErrors, Place

GraphKind: TypeAlias = Literal["chains", "stages", "edges"]

_ARROW: Final = re.compile("-+>")  # also Mermaid's
_TWICE: Final = "make a second node with the same pass"


def _read_node(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise FieldError(f"must be a node id, not the number {value!r}", remedy=f"write '{value}' in quotes")
    if not isinstance(value, str) or not value:
        raise FieldError(f"must be a node id, not {value!r}")
    return value


def _split_path(value: object) -> object:
    """Read a path `a -> b -> c` or `[a, b]`."""
    if isinstance(value, str):
        return [part.strip() for part in _ARROW.split(value)]
    if not isinstance(value, list | tuple):
        raise FieldError(f"must be a list of node ids or 'a -> b', not {value!r}")
    if not value:
        raise FieldError("is empty", remedy="name at least one pass")
    return value


def _refuse_repeated(path: tuple[str, ...]) -> tuple[str, ...]:
    for position, node in enumerate(path):
        if node in path[:position]:
            raise FieldError(f"node {node!r} is in it twice: {' -> '.join(path)}", remedy=_TWICE)
    return path


def _listed(value: object, what: str) -> list[object] | tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise FieldError(f"must be a list of {what}")
    if not value:
        raise FieldError("is empty", remedy="name at least one pass")
    return value


def _listed_chains(value: object) -> object:
    items = _listed(value, "lists of node ids")
    texts = [item for item in items if isinstance(item, str) and "->" not in item]
    if len(texts) == len(items):
        raise FieldError("must be a list of lists", remedy=f"write [[{', '.join(texts)}]] for one chain")
    return items


def _listed_edges(value: object) -> object:
    return _listed(value, "edges")


def _listed_stages(value: object) -> object:
    return _listed(value, "stages")


def _alternatives(value: object) -> object:
    if value in ([], ()):
        raise FieldError("has no alternative", remedy="write ~ for none, or remove the stage")
    return value if isinstance(value, list | tuple) else [value]


def _refuse_repeated_stages(stages: tuple[tuple[str | None, ...], ...]) -> tuple[tuple[str | None, ...], ...]:
    """Refuse a node in two places, and stages without any; "skip" counts once."""
    stage_of: dict[str, int] = {}
    mistakes: list[FieldError] = []
    for node, (_, index, position) in mentions("stages", stages):
        if node in stage_of:
            reason = f"node {node!r} is in stage {stage_of[node] + 1} already"
            mistakes.append(FieldError(reason, place=(index, position), remedy=_TWICE))
        stage_of.setdefault(node, int(index))
    if mistakes:
        raise FieldErrors(mistakes)
    if not stage_of:
        raise FieldError("has no passes")
    return tuple(tuple(dict.fromkeys(stage)) for stage in stages)


NodeId = Annotated[str, BeforeValidator(_read_node)]
Path = Annotated[
    tuple[NodeId, ...], Field(strict=False), BeforeValidator(_split_path), AfterValidator(_refuse_repeated)
]
Chains = Annotated[tuple[Path, ...], Field(strict=False), BeforeValidator(_listed_chains)]
"""Pass lists."""
Edges = Annotated[tuple[Path, ...], Field(strict=False), BeforeValidator(_listed_edges)]
"""Paths whose steps are the edges."""
Stage = Annotated[tuple[NodeId | None, ...], Field(strict=False), BeforeValidator(_alternatives)]
"""The alternatives at one place; None is "skip"."""
Stages = Annotated[
    tuple[Stage, ...], Field(strict=False), BeforeValidator(_listed_stages), AfterValidator(_refuse_repeated_stages)
]


def mentions(kind: GraphKind, graph: tuple[tuple[str | None, ...], ...]) -> Iterator[tuple[str, Place]]:
    """Yield every mention of a node in a graph, with its place."""
    for index, item in enumerate(graph):
        for position, node in enumerate(item):
            if node is not None:
                yield node, (kind, index, position)
