"""The records of a chain: its nodes in their places, its search space, and the values that are cut from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from autoopt.registry import PassInfo
from autoopt.space import NodeSpace, Point, SearchSpace
from autoopt.spec.targets import HostSpec


@dataclass(frozen=True)
class ChainNode:
    """A pass in its place in a chain. `inserted`: required by a later pass, not written by the user."""

    id: str
    pass_name: str
    info: PassInfo
    space: NodeSpace
    inserted: bool = False
    host: HostSpec = field(default_factory=HostSpec)


@dataclass(frozen=True)
class CutValue:
    """A value of one parameter that is left out of a chain's points; `beside`: only together with these others."""

    chain: str
    node: str
    param: str
    value: Any
    reason: str
    beside: Point = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        data = {"chain": self.chain, "node": self.node, "param": self.param, "value": self.value, "reason": self.reason}
        return {**data, "beside": self.beside} if self.beside else data


@dataclass(frozen=True)
class Chain:
    """One root-to-leaf path. `id`: hash of its node ids, passes and spaces; inserted passes and cuts do not change it.

    `weight`: how promising the user holds it (1 is neutral). `prior`: points to try first.
    """

    id: str
    name: str
    nodes: tuple[ChainNode, ...]
    space: SearchSpace
    points_before: int
    cuts: tuple[CutValue, ...] = ()
    weight: float = 1.0
    prior: tuple[Point, ...] = ()

    @property
    def passes(self) -> tuple[str, ...]:
        """Node ids that the user wrote, in order."""
        return tuple(n.id for n in self.nodes if not n.inserted)

    @property
    def points(self) -> int:
        """Number of valid search points."""
        return self.space.count

    def to_json(self) -> dict[str, Any]:
        data = {"id": self.id, "name": self.name, "passes": list(self.passes), "points": self.points}
        return data if self.points == self.points_before else {**data, "points_before": self.points_before}
