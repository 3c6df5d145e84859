"""The finite space of one pass node: every valid assignment of its search parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

from autoopt.errors import InputError
from autoopt.space.parameters import (
    IGNORED,
    INVALID,
    Conditional,
    ConditionalDefault,
    SearchParameter,
    Sentinel,
    Value,
    key,
    same,
)

NodePoint: TypeAlias = dict[str, Value]

MAX_GROUP: Final = 200_000
"""Most points of one group of parameters, or of passes, that depend on each other."""


@dataclass(frozen=True)
class NodeSpace:
    """The space of one pass node.

    `search`: parameters that are searched. `fixed`: values the user gave. `defaults`: of all other parameters,
    values or `ConditionalDefault`. Parents come before children whatever order they are given in.

    Raises:
        InputError: a cyclic dependency, an unknown parent, or more than `MAX_GROUP` points in one group of
            conditional parameters.
    """

    search: Mapping[str, SearchParameter] = field(default_factory=dict)
    fixed: Mapping[str, Value] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _depends(self) -> dict[str, tuple[str, ...]]:
        """Parents of each searched parameter and of each conditional default."""
        depends: dict[str, tuple[str, ...]] = {}
        for name, parameter in self.search.items():
            if isinstance(parameter, Conditional):
                depends[name] = parameter.all_parents
        for name, default in self.defaults.items():
            if isinstance(default, ConditionalDefault) and name not in self.fixed:
                depends[name] = tuple(dict.fromkeys((*depends.get(name, ()), *default.parents)))
        return depends

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Searched parameters and conditional defaults that hold, parents first."""
        known = {*self.search, *self.fixed, *self.defaults}
        for name, parents in self._depends.items():
            for parent in parents:
                if parent not in known:
                    raise InputError(f"parameter {name!r} depends on {parent!r}, which does not exist")
        done: dict[str, None] = {}
        visiting: list[str] = []

        def visit(name: str) -> None:
            if name in done:
                return
            if name in visiting:
                cycle = " -> ".join([*visiting[visiting.index(name) :], name])
                raise InputError(f"parameters depend on each other in a cycle: {cycle}")
            visiting.append(name)
            for parent in self._depends.get(name, ()):
                visit(parent)
            visiting.pop()
            done[name] = None

        for name in (*self.search, *self.defaults):
            visit(name)
        return tuple(name for name in done if name in self.search or name in self._depends)

    @cached_property
    def _groups(self) -> tuple[tuple[NodePoint, ...], ...]:
        """Points of each connected group of searched parameters; the space is their product."""
        group: dict[str, set[str]] = {name: {name} for name in self.search}
        for name in self.search:
            for root in self._searched_roots(name):
                if group[root] is not group[name]:
                    merged = group[root] | group[name]
                    group.update(dict.fromkeys(merged, merged))
        unique: list[set[str]] = []
        for members in group.values():
            if not any(members is other for other in unique):
                unique.append(members)
        return tuple(tuple(self._expand(members)) for members in unique)

    def _searched_roots(self, name: str) -> set[str]:
        """Searched parameters on which `name` depends, also through defaults that are not searched."""
        self.order  # noqa: B018 - refuses cycles
        roots: set[str] = set()
        for parent in self._depends.get(name, ()):
            roots |= {parent} if parent in self.search else self._searched_roots(parent)
        return roots

    def _expand(self, members: set[str]) -> Iterator[NodePoint]:
        names = [n for n in self.order if n in members or n not in self.search]

        def walk(index: int, point: NodePoint, config: dict[str, Value]) -> Iterator[NodePoint]:
            if index == len(names):
                yield dict(point)
                return
            name = names[index]
            branch = self._branch(name, config)
            if isinstance(branch, SearchParameter):
                for value in branch.values():
                    yield from walk(index + 1, {**point, name: value}, {**config, name: value})
            elif branch is IGNORED:
                yield from walk(index + 1, point, {**config, name: self._unsearched(name, config)})

        for produced, point in enumerate(walk(0, {}, {**self._plain_defaults, **self.fixed})):
            if produced >= MAX_GROUP:
                raise InputError(f"parameters {sorted(members)} have more than {MAX_GROUP} combinations")
            yield point

    def _branch(self, name: str, config: Mapping[str, Value]) -> SearchParameter | Sentinel:
        """What is searched of `name` beside the earlier values in `config`."""
        parameter = self.search.get(name)
        if parameter is None:
            return IGNORED
        return parameter.resolve(config) if isinstance(parameter, Conditional) else parameter

    @cached_property
    def _plain_defaults(self) -> dict[str, Value]:
        return {n: d for n, d in self.defaults.items() if not isinstance(d, ConditionalDefault)}

    def _unsearched(self, name: str, config: Mapping[str, Value]) -> Value:
        if name in self.fixed:
            return self.fixed[name]
        default = self.defaults.get(name)
        return default.choose(config) if isinstance(default, ConditionalDefault) else default

    @cached_property
    def count(self) -> int:
        """Number of valid points; 1 where nothing is searched, 0 where a condition leaves nothing."""
        return math.prod(len(g) for g in self._groups)

    def __getitem__(self, index: int) -> NodePoint:
        """The point of that index in `0..count - 1`; the first parameters vary slowest."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        point: NodePoint = {}
        for group in reversed(self._groups):
            index, within = divmod(index, len(group))
            point.update(group[within])
        return {name: point[name] for name in self.order if name in point}

    @cached_property
    def _positions(self) -> tuple[tuple[frozenset[str], dict[Hashable, int]], ...]:
        """Of each group: its names, and the place of each of its points."""
        return tuple(
            (frozenset(n for point in group for n in point), {key(point): i for i, point in enumerate(group)})
            for group in self._groups
        )

    def index(self, point: Mapping[str, Value]) -> int:
        """The reverse of `[]`.

        Raises:
            InputError: not a point of this space.
        """
        index, used = 0, 0
        for names, positions in self._positions:
            part = {name: point[name] for name in point if name in names}
            place = positions.get(key(part))
            if place is None:
                raise InputError(f"not a point of this space: {dict(point)}")
            index, used = index * len(positions) + place, used + len(part)
        if used != len(point) or (not self._groups and point):
            raise InputError(f"not a point of this space: {dict(point)}")
        return index

    def iterate(self) -> Iterator[NodePoint]:
        """All valid points, once each, lazily, in order."""
        return (self[i] for i in range(self.count))

    def walk(self, choose: Callable[[str, tuple[Value, ...]], Value]) -> NodePoint | None:
        """A point chosen one parameter at a time, parents first; None where the choices exclude each other.

        `choose` gets a label and the values: the parameter's name, followed by `@` and the parents' values where
        those decide which values there are.
        """
        point: NodePoint = {}
        config = {**self._plain_defaults, **self.fixed}
        for name in self.order:
            branch = self._branch(name, config)
            if branch is INVALID:
                return None
            if not isinstance(branch, SearchParameter):
                config[name] = self._unsearched(name, config)
                continue
            label, parameter = name, self.search[name]
            if isinstance(parameter, Conditional) and parameter.varies:
                label += "@" + ",".join(json.dumps(config.get(p), sort_keys=True) for p in parameter.all_parents)
            point[name] = config[name] = choose(label, branch.values())
        return point

    def config(self, point: Mapping[str, Value]) -> dict[str, Value]:
        """The full configuration at `point`: searched, fixed and default values, sorted by name.

        Raises:
            InputError: a value that this space does not hold, or parents that exclude each other.
        """
        config = {**self._plain_defaults, **self.fixed}
        for name in self.order:
            branch = self._branch(name, config)
            if branch is INVALID:
                raise InputError(f"no valid value for {name!r} beside {dict(point)}")
            if not isinstance(branch, SearchParameter):
                if name in point:
                    raise InputError(f"{name!r} has no meaning beside {dict(point)}")
                config[name] = self._unsearched(name, config)
                continue
            if name not in point or not any(same(point[name], v) for v in branch.values()):
                raise InputError(f"{name!r} must be one of {list(branch.values())}, not {point.get(name)!r}")
            config[name] = point[name]
        unknown = set(point) - set(self.search)
        if unknown:
            raise InputError(f"not searched here: {', '.join(sorted(unknown))}")
        return dict(sorted(config.items()))
