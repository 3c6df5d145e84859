"""The records of a chain: its nodes in their places, its search space, and the values that are cut from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoopt.json_codec import JsonValue, to_json
from autoopt.registry import PassInfo
from autoopt.space import NodeSpace, Point, SearchSpace, Value
from autoopt.spec.targets import HostSpec


@dataclass(frozen=True)
class ChainNode:
    """A pass at its place in a chain. `inserted`: required by a later pass and not part of the spec."""

    id: str
    pass_name: str
    info: PassInfo
    space: NodeSpace
    inserted: bool = False
    host: HostSpec = field(default_factory=HostSpec)


@dataclass(frozen=True)
class CutValue:
    """A value of one parameter that a chain's points do not have; `beside`: only in combination with these values."""

    chain: str
    node: str
    param: str
    value: Value
    reason: str
    beside: Point = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        """The cut as JSON; without `beside` if it is empty."""
        data: dict[str, JsonValue] = to_json(self)
        if not self.beside:
            del data["beside"]
        return data


@dataclass(frozen=True)
class Chain:
    """One root-to-leaf path. `id`: hash of its node ids, passes and spaces; inserted passes and cuts do not change it.

    `weight`: the user's estimate of how promising it is (1 is neutral). `prior`: points to try first.
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
        """Node ids of the spec, in order, without inserted passes."""
        return tuple(node.id for node in self.nodes if not node.inserted)

    @property
    def lossy(self) -> bool:
        """True if one of its passes changes results on purpose."""
        return any(node.info.tolerance == "lossy" for node in self.nodes)

    @property
    def points(self) -> int:
        """Number of valid search points."""
        return self.space.count

    def to_json(self) -> dict[str, JsonValue]:
        """The chain as JSON; with `points_before` if cuts exclude points."""
        data: dict[str, JsonValue] = {
            "id": self.id,
            "name": self.name,
            "passes": list(self.passes),
            "points": self.points,
        }
        if self.points != self.points_before:
            data["points_before"] = self.points_before
        return data
