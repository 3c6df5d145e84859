"""Chains to search, proposals, feedback and trials. Imports no numeric library."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from autoopt.space import Point, SearchSpace


@dataclass(frozen=True)
class ChainSpace:
    """One chain and its own search space.

    `passes`: (node id, pass name) in order. `weight`: how promising the user holds it (1 is neutral; it multiplies the
    expected improvement). `prior`: points to try first.
    """

    id: str
    passes: tuple[tuple[str, str], ...]
    space: SearchSpace
    weight: float = 1.0
    prior: tuple[Point, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for node, _ in self.passes)


@dataclass(frozen=True)
class Proposal:
    """Trial `number` (0, 1, 2, ... in the order asked): take `chain` at `point`.

    `upto`: None for the whole chain. Otherwise the id of the last node to run: the proposal is a partial chain, its
    `point` speaks of no later node, and what that node leaves is to be measured.
    """

    number: int
    chain: str
    point: Point
    upto: str | None = None


@dataclass(frozen=True)
class Feedback:
    """What a trial gave.

    `values`: measured metrics by name, in their own units; may lack metrics when the trial was stopped at a broken
    constraint. `violation`: how far the worst constraint is broken, <= 0 is feasible. `failed`: it has no candidate.
    `artifact`: key of the final candidate; equal keys are one candidate.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    violation: float = 0.0
    failed: bool = False
    artifact: str | None = None


@dataclass(frozen=True)
class Trial:
    """A proposal and what it gave; `feedback` is None while it is running."""

    proposal: Proposal
    feedback: Feedback | None = None


Cost: TypeAlias = Callable[[str, Point], tuple[bool, int]]
"""(chain id, point) -> (whether its candidate is already measured, how many of its last passes are not cached)."""


def point_key(nodes: Sequence[str], point: Mapping[str, Mapping[str, Any]], upto: str | None = None) -> str:
    """What makes two proposals the same: the passes run, in order, with their searched values.

    Partial chains of two chains that share a prefix have one key.
    """
    path = list(nodes) if upto is None else list(nodes)[: list(nodes).index(upto) + 1]
    return json.dumps([[node, point.get(node, {})] for node in path], sort_keys=True, separators=(",", ":"))
