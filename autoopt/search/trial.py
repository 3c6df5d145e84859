"""The records of a search: chains with their spaces, and proposals with their feedback."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from autoopt.space import Point, SearchSpace, Value

UNASKED: Final = -1
"""Number of a point that was never asked, because it repeats a known candidate."""


@dataclass(frozen=True)
class ChainSpace:
    """One chain and its search space."""

    id: str
    passes: tuple[tuple[str, str], ...]
    """(node id, pass name), in order."""
    space: SearchSpace
    weight: float = 1.0
    """The promise that the user sees in the chain; 1 is neutral. It multiplies the expected improvement."""
    prior: tuple[Point, ...] = ()
    """Points to try first."""
    sets_only_run: bool = False
    """The last pass changes no model, only the settings that it runs with."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The node ids, in order."""
        return tuple(node for node, _ in self.passes)


@dataclass(frozen=True)
class Feedback:
    """The result of a trial."""

    values: Mapping[str, float] = field(default_factory=dict)
    """Metrics by name, in their own units. Some may be missing if the trial stopped at a broken constraint."""
    violation: float = 0.0
    """By how much the worst constraint is broken; <= 0 is feasible."""
    failed: bool = False
    """The trial produced no candidate."""
    artifact: str | None = None
    """Key of the final candidate; equal keys are the same candidate."""
    twin: str | None = None
    """Another identity of the candidate: one that is equal in it has the same values."""
    path: tuple[str, ...] = ()
    """Keys of the candidates after each of the chain's passes in turn, as far as known; `FAILED` where one failed."""
    seconds: float = 0.0
    """By how much the trial made the search longer; 0 if that is not known, or if earlier work answered it."""


@dataclass(frozen=True)
class Proposal:
    """A point of a chain to try, with its result."""

    number: int
    """0, 1, 2, ... in the order asked."""
    chain: str
    point: Point
    upto: str | None = None
    """Last node to run, for a partial chain whose intermediate model is measured; None for the whole chain."""
    feedback: Feedback | None = None
    """The result of its trial; None while that is running, or has not begun."""


Cost: TypeAlias = Callable[[str, Point], tuple[bool, int]]
"""(chain id, point) -> (True if its candidate is measured already, number of its last passes that are not cached)."""


def point_key(nodes: Sequence[str], point: Mapping[str, Mapping[str, Value]], upto: str | None = None) -> str:
    """Identify a proposal by the passes it runs, in order, and their searched values.

    Partial chains of two chains with the same beginning have the same key.
    """
    path = list(nodes)
    if upto is not None:
        path = path[: path.index(upto) + 1]
    return json.dumps([[node, point.get(node, {})] for node in path], sort_keys=True, separators=(",", ":"))
