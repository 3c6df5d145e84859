"""The search space of a chain: the product of its nodes' spaces, less the points that priors cut."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TypeAlias

from autoopt.errors import InputError
from autoopt.space.node_space import MAX_GROUP, NodePoint, NodeSpace
from autoopt.space.parameters import Value, same

Point: TypeAlias = dict[str, NodePoint]


@dataclass(frozen=True)
class _Block:
    """Neighbouring nodes whose points are enumerated together: `kept` are the raw indices that no cut takes out."""

    nodes: tuple[tuple[str, NodeSpace], ...]
    kept: tuple[int, ...] | None = None

    @cached_property
    def raw(self) -> int:
        return math.prod(space.count for _, space in self.nodes)

    @property
    def count(self) -> int:
        return self.raw if self.kept is None else len(self.kept)

    def point(self, index: int) -> Point:
        """The point at a raw index; nodes without search parameters are left out."""
        parts: list[tuple[str, NodePoint]] = []
        for node, space in reversed(self.nodes):
            index, within = divmod(index, space.count)
            parts.append((node, space[within]))
        return {node: point for node, point in reversed(parts) if point}

    def __getitem__(self, index: int) -> Point:
        return self.point(index if self.kept is None else self.kept[index])

    def index(self, point: Mapping[str, Mapping[str, Value]]) -> int | None:
        """The reverse of `[]`; None for a point that is cut."""
        raw = 0
        for node, space in self.nodes:
            raw = raw * space.count + space.index(point.get(node, {}))
        if self.kept is None:
            return raw
        place = bisect_left(self.kept, raw)
        return place if place < len(self.kept) and self.kept[place] == raw else None

    def less(self, cuts: list[Point]) -> _Block:
        if self.raw > MAX_GROUP:
            names = ", ".join(node for node, _ in self.nodes)
            raise InputError(f"cuts across {names} need at most {MAX_GROUP} points; these have {self.raw}")
        kept = (i for i in range(self.raw) if not any(matches(self.point(i), cut) for cut in cuts))
        return _Block(self.nodes, tuple(kept))


@dataclass(frozen=True)
class SearchSpace:
    """The space of a chain: the product of its nodes' spaces, less the `cuts`.

    A cut is a partial assignment `{node id: {parameter: value}}`; points that agree with it are invalid.
    """

    nodes: Mapping[str, NodeSpace]
    cuts: tuple[Point, ...] = ()

    @cached_property
    def _blocks(self) -> tuple[_Block, ...]:
        """Nodes that cuts tie together, with all between them, so that the order of points is that without cuts."""
        places = {node: place for place, node in enumerate(self.nodes)}
        spans: list[tuple[int, int, list[Point]]] = [(place, place, []) for place in places.values()]
        for cut in self.cuts:
            touched = [node for node, values in cut.items() if values]
            if not all(node in places for node in touched):
                continue  # agrees with no point of this chain
            low = min((places[node] for node in touched), default=0)
            high = max((places[node] for node in touched), default=len(places) - 1)
            met = [span for span in spans if span[0] <= high and low <= span[1]]
            merged = (min(s[0] for s in met), max(s[1] for s in met), [cut, *(c for s in met for c in s[2])])
            spans = sorted([*(span for span in spans if span not in met), merged], key=lambda span: span[:2])
        items = tuple(self.nodes.items())
        blocks = ((_Block(items[low : high + 1]), cuts) for low, high, cuts in spans)
        return tuple(block.less(cuts) if cuts else block for block, cuts in blocks)

    @cached_property
    def count(self) -> int:
        """Number of valid points, exact."""
        return math.prod(block.count for block in self._blocks)

    def __getitem__(self, index: int) -> Point:
        """The point of that index in `0..count - 1`; nodes without search parameters are left out."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        parts: list[Point] = []
        for block in reversed(self._blocks):
            index, within = divmod(index, block.count)
            parts.append(block[within])
        return {node: values for part in reversed(parts) for node, values in part.items()}

    def index(self, point: Mapping[str, Mapping[str, Value]]) -> int:
        """The reverse of `[]`: where a point stands in the order of points.

        Raises:
            InputError: the point is not of this space.
        """
        self._known_nodes(point)
        index = 0
        for block in self._blocks:
            place = block.index(point)
            if place is None:
                raise InputError(f"this point is cut: {point}")
            index = index * block.count + place
        return index

    def allows(self, point: Mapping[str, Mapping[str, Value]]) -> bool:
        """Whether no cut takes `point` out."""
        return not any(matches(point, cut) for cut in self.cuts)

    def iterate(self) -> Iterator[Point]:
        """All valid points, once each, lazily, in order."""
        return (self[i] for i in range(self.count))

    def random_sample(self, rng: Random) -> Point:
        """A point drawn uniformly; `ValueError` on an empty space."""
        return self[rng.randrange(self.count)]

    def configs(self, point: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, Value]]:
        """The full configuration of every node at `point`, in chain order.

        Raises:
            InputError: the point is not of this space.
        """
        self._known_nodes(point)
        if not self.allows(point):
            raise InputError(f"this point is cut: {point}")
        return {node: space.config(point.get(node, {})) for node, space in self.nodes.items()}

    def _known_nodes(self, point: Mapping[str, Mapping[str, Value]]) -> None:
        unknown = set(point) - set(self.nodes)
        if unknown:
            raise InputError(f"no such node in this chain: {', '.join(sorted(unknown))}")


def matches(point: Mapping[str, Mapping[str, Value]], cut: Mapping[str, Mapping[str, Value]]) -> bool:
    """Whether `point` agrees with the partial assignment `cut`."""
    return all(
        node in point and name in point[node] and same(point[node][name], value)
        for node, values in cut.items()
        for name, value in values.items()
    )
