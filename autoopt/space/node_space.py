"""The finite space of one pass node: every valid assignment of its search parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias, cast

from autoopt.errors import InputError
from autoopt.space.parameters import (
    IGNORED,
    INVALID,
    Branch,
    Conditional,
    ConditionalDefault,
    SearchParameter,
    Value,
    same,
    value_key,
)

NodePoint: TypeAlias = dict[str, Value]

MAX_GROUP: Final = 200_000
"""Most points of one group of parameters, or of passes, that depend on each other."""


def unravel(index: int, sizes: Sequence[int]) -> list[int]:
    """Split an index into one index per size, the last varying fastest, as `numpy.unravel_index` does.

    Raises:
        IndexError: not below the product of the sizes.
    """
    if not 0 <= index < math.prod(sizes):
        raise IndexError(index)
    indexes: list[int] = []
    for size in reversed(sizes):
        index, within = divmod(index, size)
        indexes.append(within)
    return indexes[::-1]


@dataclass(frozen=True)
class NodeSpace:
    """The space of one pass node.

    `search`: parameters that are searched. `fixed`: values that the user gave. `defaults`: of all other parameters,
    values or `ConditionalDefault`. Parents come before children in whatever order they are given.

    Raises:
        InputError: a cyclic dependency, an unknown parent, or more than `MAX_GROUP` points in one group of
            conditional parameters. Raised at first use, not by the constructor.
    """

    search: Mapping[str, SearchParameter] = field(default_factory=dict)
    fixed: Mapping[str, Value] = field(default_factory=dict)
    defaults: Mapping[str, Value | ConditionalDefault] = field(default_factory=dict)

    @cached_property
    def count(self) -> int:
        """Number of valid points; 1 if nothing is searched, 0 if the conditions exclude everything."""
        return math.prod(map(len, self._groups))

    def __getitem__(self, index: int) -> NodePoint:
        """The point with that index in `0..count - 1`; the first parameters vary slowest."""
        point: NodePoint = {}
        indexes = unravel(index, list(map(len, self._groups)))
        for group, within in zip(self._groups, indexes, strict=True):
            point.update(group[within])
        return {name: point[name] for name in self.order if name in point}

    def index(self, point: Mapping[str, Value]) -> int:
        """The reverse of `[]`.

        Raises:
            InputError: not a point of this space.
        """
        index = matched = 0
        for names, positions in self._positions:
            part: NodePoint = {}
            for name, value in point.items():
                if name in names:
                    part[name] = value
            position = positions.get(value_key(part))
            if position is None:
                raise InputError(f"not a point of this space: {dict(point)}")
            index = index * len(positions) + position
            matched += len(part)
        if matched != len(point):
            raise InputError(f"not a point of this space: {dict(point)}")
        return index

    def iterate(self) -> Iterator[NodePoint]:
        """All valid points in order, lazily."""
        return map(self.__getitem__, range(self.count))

    def walk(self, choose: Callable[[str, tuple[Value, ...]], Value]) -> NodePoint | None:
        """A point chosen one parameter at a time, parents first; None if the choices exclude each other.

        `choose` gets a label and the values. The label is the parameter's name; if the parents decide which values
        there are, `@` and the parents' values follow.
        """
        point: NodePoint = {}
        config = self._start_config()
        for name in self.order:
            branch = self._branch(name, config)
            if branch is INVALID:
                return None
            if isinstance(branch, SearchParameter):
                point[name] = config[name] = choose(self._label(name, config), branch.values())
            else:
                config[name] = self._default(name, config)
        return point

    def config(self, point: Mapping[str, Value]) -> dict[str, Value]:
        """The full configuration at `point`: searched, fixed and default values, sorted by name.

        Raises:
            InputError: a value that this space does not hold, or parents that exclude each other.
        """
        config = self._start_config()
        for name in self.order:
            branch = self._branch(name, config)
            if branch is INVALID:
                raise InputError(f"no valid value for {name!r} with {dict(point)}")
            if not isinstance(branch, SearchParameter):
                if name in point:
                    raise InputError(f"{name!r} has no effect with {dict(point)}")
                config[name] = self._default(name, config)
                continue
            if name not in point or not branch.offers(point[name]):
                raise InputError(f"{name!r} must be one of {list(branch.values())}, not {point.get(name)!r}")
            config[name] = point[name]
        unknown = sorted(set(point) - set(self.search))
        if unknown:
            raise InputError(f"not searched here: {', '.join(unknown)}")
        return dict(sorted(config.items()))

    def without_value(self, name: str, value: Value) -> NodeSpace:
        """The space without one value of one parameter; without any point if that was its last value."""
        parameter = self.search.get(name)
        if not isinstance(parameter, SearchParameter):
            return self
        restricted = cast(SearchParameter, parameter.restrict(lambda other: not same(other, value)))
        return NodeSpace({**self.search, name: restricted}, self.fixed, self.defaults)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Searched parameters and conditional defaults, parents first."""
        names = {*self.search, *self.fixed, *self.defaults}
        for name, parents in self._parents.items():
            for parent in parents:
                if parent not in names:
                    raise InputError(f"parameter {name!r} depends on {parent!r}, which does not exist")
        ordered: dict[str, None] = {}
        for name in (*self.search, *self._parents):
            self._append_after_parents(name, ordered, ())
        return tuple(ordered)

    def _append_after_parents(self, name: str, ordered: dict[str, None], path: tuple[str, ...]) -> None:
        if name in ordered or (name not in self.search and name not in self._parents):
            return
        if name in path:
            cycle = " -> ".join([*path[path.index(name) :], name])
            raise InputError(f"parameters depend on each other in a cycle: {cycle}")
        for parent in self._parents.get(name, ()):
            self._append_after_parents(parent, ordered, (*path, name))
        ordered[name] = None

    @cached_property
    def _parents(self) -> dict[str, tuple[str, ...]]:
        """Parents of each conditional parameter and of each conditional default that is not overridden."""
        parents: dict[str, tuple[str, ...]] = {}
        for name, parameter in self.search.items():
            if isinstance(parameter, Conditional):
                parents[name] = parameter.all_parents
        for name, default in self.defaults.items():
            if isinstance(default, ConditionalDefault) and name not in self.fixed:
                parents[name] = tuple(dict.fromkeys((*parents.get(name, ()), *default.parents)))
        return parents

    @cached_property
    def _groups(self) -> tuple[tuple[NodePoint, ...], ...]:
        """Points of each connected group of searched parameters; the space is their product."""
        # Only parameters that depend on each other are enumerated together: the product of all would not fit in memory.
        groups: list[set[str]] = []
        for name in self.search:
            merged = {name} | self._searched_parents(name)
            separate = []
            for group in groups:
                if group & merged:
                    merged |= group
                else:
                    separate.append(group)
            groups = [*separate, merged]
        names = list(self.search)
        groups.sort(key=lambda group: min(map(names.index, group)))
        return tuple(map(tuple, map(self._group_points, groups)))

    def _searched_parents(self, name: str) -> set[str]:
        """Searched parameters on which `name` depends, directly or through defaults that are not searched."""
        self.order  # noqa: B018  raises on a cycle, which would recurse for ever here
        searched: set[str] = set()
        for parent in self._parents.get(name, ()):
            if parent in self.search:
                searched.add(parent)
            else:
                searched |= self._searched_parents(parent)
        return searched

    def _group_points(self, group: set[str]) -> Iterator[NodePoint]:
        names = [name for name in self.order if name in group or name not in self.search]
        for produced, point in enumerate(self._assignments(names, {}, self._start_config())):
            if produced >= MAX_GROUP:
                raise InputError(f"parameters {sorted(group)} have more than {MAX_GROUP} combinations")
            yield point

    def _assignments(self, names: Sequence[str], point: NodePoint, config: dict[str, Value]) -> Iterator[NodePoint]:
        """`point` extended by each valid assignment of `names`; `config` holds all values chosen so far."""
        if not names:
            yield point
            return
        name, *rest = names
        branch = self._branch(name, config)
        if isinstance(branch, SearchParameter):
            for value in branch.values():
                yield from self._assignments(rest, {**point, name: value}, {**config, name: value})
        elif branch is IGNORED:
            yield from self._assignments(rest, point, {**config, name: self._default(name, config)})

    @cached_property
    def _positions(self) -> tuple[tuple[frozenset[str], dict[Hashable, int]], ...]:
        """For each group: its names, and the position of each of its points."""
        positions = []
        for group in self._groups:
            names: set[str] = set()
            by_key: dict[Hashable, int] = {}
            for index, point in enumerate(group):
                names.update(point)
                by_key[value_key(point)] = index
            positions.append((frozenset(names), by_key))
        return tuple(positions)

    def _start_config(self) -> dict[str, Value]:
        """Values that depend on no choice: plain defaults and fixed values."""
        plain = {name: value for name, value in self.defaults.items() if not isinstance(value, ConditionalDefault)}
        return {**plain, **self.fixed}

    def _branch(self, name: str, config: Mapping[str, Value]) -> Branch:
        """The values that are searched for `name`, given the earlier values in `config`."""
        parameter = self.search.get(name, IGNORED)
        if isinstance(parameter, Conditional):
            return parameter.resolve(config)
        return parameter

    def _default(self, name: str, config: Mapping[str, Value]) -> Value:
        if name in self.fixed:
            return self.fixed[name]
        default = self.defaults.get(name)
        if isinstance(default, ConditionalDefault):
            return default.choose(config)
        return default

    def _label(self, name: str, config: Mapping[str, Value]) -> str:
        parameter = self.search[name]
        if not isinstance(parameter, Conditional) or not parameter.varies:
            return name
        return f"{name}@" + ",".join(json.dumps(config.get(p), sort_keys=True) for p in parameter.all_parents)
