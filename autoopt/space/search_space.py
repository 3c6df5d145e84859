"""The search space of a chain: the product of its nodes' spaces, less the points that priors cut."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from random import Random
from typing import TypeAlias

from autoopt.errors import InputError
from autoopt.space.node_space import MAX_GROUP, NodePoint, NodeSpace, unravel
from autoopt.space.parameters import Value, same

Point: TypeAlias = dict[str, NodePoint]


@dataclass(frozen=True)
class SearchSpace:
    """The product of the spaces of a chain's nodes, less the `cuts`.

    A cut is a partial assignment `{node id: {parameter: value}}`; points that match it are invalid.
    """

    nodes: Mapping[str, NodeSpace]
    cuts: tuple[Point, ...] = ()

    @cached_property
    def count(self) -> int:
        """Number of valid points, exact."""
        if not self.cuts:
            return math.prod(space.count for space in self.nodes.values())
        return math.prod(block.count for block in self._blocks)

    def __getitem__(self, index: int) -> Point:
        """The point with that index in `0..count - 1`; nodes without search parameters are omitted."""
        point: Point = {}
        indexes = unravel(index, [block.count for block in self._blocks])
        for block, within in zip(self._blocks, indexes, strict=True):
            point.update(block[within])
        return point

    def index(self, point: Mapping[str, Mapping[str, Value]]) -> int:
        """The reverse of `[]`.

        Raises:
            InputError: the point is not in this space.
        """
        self._check_nodes(point)
        index = 0
        for block in self._blocks:
            position = block.index(point)
            if position is None:
                raise InputError(f"this point is cut: {point}")
            index = index * block.count + position
        return index

    def allows(self, point: Mapping[str, Mapping[str, Value]]) -> bool:
        """True if no cut matches `point`."""
        return not any(matches(point, cut) for cut in self.cuts)

    def iterate(self) -> Iterator[Point]:
        """All valid points in order, lazily."""
        return map(self.__getitem__, range(self.count))

    def random_sample(self, rng: Random) -> Point:
        """A point drawn uniformly.

        Raises:
            ValueError: the space is empty.
        """
        return self[rng.randrange(self.count)]

    def configs(self, point: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, Value]]:
        """The full configuration of every node at `point`, in chain order.

        Raises:
            InputError: the point is not in this space.
        """
        self._check_nodes(point)
        if not self.allows(point):
            raise InputError(f"this point is cut: {point}")
        return {node: space.config(point.get(node, {})) for node, space in self.nodes.items()}

    def _check_nodes(self, point: Mapping[str, object]) -> None:
        unknown = sorted(set(point) - set(self.nodes))
        if unknown:
            raise InputError(f"no such node in this chain: {', '.join(unknown)}")

    @cached_property
    def _blocks(self) -> tuple[_Block, ...]:
        """The nodes in blocks: each cut lies within one block, and a node that no cut names is a block of its own.

        A block spans neighbouring nodes, which keeps the order of points the same as without cuts.
        """
        nodes = tuple(self.nodes.items())
        position = {node: index for index, node in enumerate(self.nodes)}
        cuts_from: list[list[Point]] = [[] for _ in nodes]
        last_of_span = list(range(len(nodes)))
        for cut in self.cuts:
            touched = [node for node, values in cut.items() if values]
            if not set(touched) <= set(position):
                continue  # matches no point of this chain
            # A cut without values matches every point, so it spans the whole chain.
            indexes = [position[node] for node in touched] or [0, len(nodes) - 1]
            first = min(indexes)
            cuts_from[first].append(cut)
            last_of_span[first] = max(last_of_span[first], *indexes)
        blocks: list[_Block] = []
        first = last = 0
        for index in range(len(nodes)):
            last = max(last, last_of_span[index])
            if index == last:  # no cut reaches beyond this node
                cuts = tuple(chain.from_iterable(cuts_from[first : index + 1]))
                blocks.append(_Block.of(nodes[first : index + 1], cuts))
                first = last = index + 1
        return tuple(blocks)


def matches(point: Mapping[str, Mapping[str, Value]], cut: Mapping[str, Mapping[str, Value]]) -> bool:
    """True if `point` has every value of the partial assignment `cut`."""
    for node, values in cut.items():
        for name, value in values.items():
            if node not in point or name not in point[node] or not same(point[node][name], value):
                return False
    return True


@dataclass(frozen=True)
class _Block:
    """Neighbouring nodes whose points are enumerated together.

    A raw index counts all points of the block; `valid` lists those that no cut excludes (None: all).
    """

    nodes: tuple[tuple[str, NodeSpace], ...]
    valid: tuple[int, ...] | None = None

    @classmethod
    def of(cls, nodes: tuple[tuple[str, NodeSpace], ...], cuts: tuple[Point, ...]) -> _Block:
        """The block of `nodes` without the points that match a cut."""
        block = cls(nodes)
        if not cuts:
            return block
        if block.raw_count > MAX_GROUP:
            names = ", ".join(node for node, _ in nodes)
            raise InputError(f"cuts across {names} need at most {MAX_GROUP} points; these have {block.raw_count}")
        valid = []
        for index in range(block.raw_count):
            point = block.raw_point(index)
            if not any(matches(point, cut) for cut in cuts):
                valid.append(index)
        return cls(nodes, tuple(valid))

    @cached_property
    def raw_count(self) -> int:
        return math.prod(space.count for _, space in self.nodes)

    @property
    def count(self) -> int:
        if self.valid is None:
            return self.raw_count
        return len(self.valid)

    def raw_point(self, index: int) -> Point:
        """The point at a raw index; nodes without search parameters are omitted."""
        point: Point = {}
        indexes = unravel(index, [space.count for _, space in self.nodes])
        for (node, space), within in zip(self.nodes, indexes, strict=True):
            part = space[within]
            if part:
                point[node] = part
        return point

    def __getitem__(self, index: int) -> Point:
        if self.valid is not None:
            index = self.valid[index]
        return self.raw_point(index)

    def index(self, point: Mapping[str, Mapping[str, Value]]) -> int | None:
        """The reverse of `[]`; None for a point that is cut."""
        raw = 0
        for node, space in self.nodes:
            raw = raw * space.count + space.index(point.get(node, {}))
        if self.valid is None:
            return raw
        position = bisect_left(self.valid, raw)
        if self.valid[position : position + 1] != (raw,):
            return None
        return position
