"""The pass graph (`chains:`, `stages:`, `edges:`) and priors about its chains (`prefer:`, `forbid:`, `require:`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, model_validator

from autoopt.spec.source import FieldError, FieldErrors, Place
from autoopt.spec.strict_model import StrictModel

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
Edges = Annotated[tuple[Path, ...], Field(strict=False), BeforeValidator(partial(_listed, what="edges"))]
"""Paths whose steps are the edges."""
Stage = Annotated[tuple[NodeId | None, ...], Field(strict=False), BeforeValidator(_alternatives)]
"""The alternatives at one place; None is "skip"."""
Stages = Annotated[
    tuple[Stage, ...],
    Field(strict=False),
    BeforeValidator(partial(_listed, what="stages")),
    AfterValidator(_refuse_repeated_stages),
]


def mentions(kind: GraphKind, graph: tuple[tuple[str | None, ...], ...]) -> Iterator[tuple[str, Place]]:
    """Yield every mention of a node in a graph, with its place."""
    for index, item in enumerate(graph):
        for position, node in enumerate(item):
            if node is not None:
                yield node, (kind, index, position)


class PriorSpec(StrictModel):
    """A statement about chains, or about parameter values in them. A bare text `a -> b` is a whole chain.

    `chain`: exactly this chain. `nodes`: every chain that has all these nodes, and none of `without`. Neither: every
    chain. `values`: about points with these values; without it, about whole chains.
    """

    chain: Path | None = None
    """Exactly this chain: node ids, or `a -> b`."""
    nodes: Path | None = None
    """Every chain that has all these nodes."""
    without: Path = ()
    """Nodes that a chain must not have for the rule to apply."""
    values: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Node id -> parameter -> value; all of them together."""
    reason: str = ""
    """Shown in plans, next to what it excludes or favours."""

    @classmethod
    def expand(cls, value: object) -> object:
        """Convert a bare chain to the full form."""
        if isinstance(value, str | list):
            return {"chain": value}
        return value

    @model_validator(mode="after")
    def _check(self) -> PriorSpec:
        if self.chain is not None and self.nodes is not None:
            raise FieldError("has both chain and nodes", remedy="remove one of them")
        if self.without and self.nodes is None:
            raise FieldError("has without, but no nodes", remedy="name the nodes that the chains have")
        if self.chain is None and self.nodes is None and not self.values:
            raise FieldError("is empty", remedy="give chain, nodes or values")
        if not all(self.values.values()):
            raise FieldError("names a node without values", place=("values",))
        return self


class PreferSpec(PriorSpec):
    """Chains or values to favour."""

    weight: float = Field(default=2.0, gt=0, le=1000)
    """Multiplies the expected improvement of the chains; values are tried first."""
