"""Search parameters: the values that a pass parameter may take, and their dependence on other parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from autoopt.json_codec import JsonObject, JsonValue

Value: TypeAlias = JsonValue
T = TypeVar("T")

Support: TypeAlias = Mapping[Any, T]
"""Values by the parents' values: a tuple, or one value if there is one parent."""

MAX_VALUES: Final = 10_000
"""Most values of one parameter."""


class Sentinel:
    """`INVALID` or `IGNORED`; there are no others."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


INVALID: Final = Sentinel("INVALID")
"""In `Conditional`: this combination of parent values is not allowed."""
IGNORED: Final = Sentinel("IGNORED")
"""In `Conditional`: the parameter has no effect here; it takes its default and is not part of the point."""


class SearchParameter:
    """A finite list of values to search."""

    def values(self) -> tuple[Value, ...]:
        """The values in order, without repeats."""
        raise TypeError(f"{type(self).__name__} has values only for known parents; resolve it first")

    def all_values(self) -> tuple[Value, ...]:
        """Every value that the parameter can take, under any condition."""
        return self.values()

    def offers(self, value: Value) -> bool:
        """True if the parameter can take `value`, under any condition."""
        return any(same(value, other) for other in self.all_values())

    def restrict(self, allows: Callable[[Value], bool]) -> Branch:
        """The parameter with only the values that `allows` accepts; `INVALID` if it accepts none."""
        values = list(filter(allows, self.values()))
        if not values:
            return INVALID
        return Categorical(values)

    def __len__(self) -> int:
        return len(self.values())


Branch: TypeAlias = SearchParameter | Sentinel


class Categorical(SearchParameter):
    """One of the given values: `Categorical("QInt8", "QUInt8")`; a single list or tuple is the list of values."""

    def __init__(self, *values: Value) -> None:
        if len(values) == 1 and isinstance(values[0], (list, tuple)) and values[0]:
            values = tuple(values[0])
        if not values:
            raise ValueError("Categorical needs at least one value")
        distinct: dict[Hashable, Value] = {}
        for value in values:
            distinct.setdefault(value_key(value), value)
        self._values = tuple(distinct.values())

    def values(self) -> tuple[Value, ...]:
        return self._values

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._values))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Categorical) and same(self._values, other._values)

    def __hash__(self) -> int:
        return hash(value_key(self._values))


class Boolean(Categorical):
    """`True` or `False`."""

    def __init__(self) -> None:
        super().__init__(True, False)

    def __repr__(self) -> str:
        return "Boolean()"


class Integer(Categorical):
    """`low, low + step, ...` up to `high` inclusive; with `log`, each value is `step` (default 2) times the last."""

    def __init__(self, low: int, high: int, step: int | None = None, log: bool = False) -> None:
        if low > high:
            raise ValueError(f"low {low} is above high {high}")
        if not log:
            step = 1 if step is None else step
            if step < 1:
                raise ValueError("step must be at least 1")
            if (high - low) // step >= MAX_VALUES:
                raise ValueError(f"more than {MAX_VALUES} values; give a larger step")
            super().__init__(list(range(low, high + 1, step)))
            return
        factor = 2 if step is None else step
        if factor < 2:
            raise ValueError("step must be at least 2")
        if low < 1:
            raise ValueError("log needs low >= 1")
        values: list[Value] = [low]
        while low * factor <= high:
            low *= factor
            values.append(low)
        super().__init__(values)


class Float(Categorical):
    """Evenly spaced values from `low` to `high`: by `step`, or `count` of them (geometric with `log`)."""

    def __init__(
        self, low: float, high: float, step: float | None = None, count: int | None = None, log: bool = False
    ) -> None:
        if not (math.isfinite(low) and math.isfinite(high)) or low > high:
            raise ValueError(f"low {low} and high {high} must be finite and in order")
        if log and low <= 0:
            raise ValueError("log needs low > 0")
        if (step is None) == (count is None):
            raise ValueError("needs exactly one of step or count")
        if step is not None:
            if log:
                raise ValueError("step goes without log; use count")
            super().__init__(_stepped(float(low), float(high), step))
        elif count is not None:
            super().__init__(_divided(float(low), float(high), count, log))


def _stepped(low: float, high: float, step: float) -> list[float]:
    if not math.isfinite(step) or step <= 0:
        raise ValueError("step must be above 0 and finite")
    if (high - low) / step > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values; give a larger step")
    # A float division can fall just short of a whole number of steps.
    steps = math.floor((high - low) / step + 1e-9)
    return [_rounded(low + index * step, low, high) for index in range(steps + 1)]


def _divided(low: float, high: float, count: int, log: bool) -> list[float]:
    if count < 1 or (count == 1 and high > low):
        raise ValueError("count must be at least 2")
    if count > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values; give a smaller count")
    values = [low]
    for index in range(1, count - 1):
        share = index / (count - 1)
        if log:
            value = math.exp(math.log(low) + (math.log(high) - math.log(low)) * share)
        else:
            value = low * (1 - share) + high * share
        values.append(_rounded(value, low, high))
    return [*values, high]


def _rounded(value: float, low: float, high: float) -> float:
    """Round to 12 digits, so that 0.1 + 2 * 0.1 reads 0.3; never beyond the bounds."""
    return min(high, max(low, float(f"{value:.12g}")))


def value_key(value: object) -> Hashable:
    """A key that is equal for the same JSON values: `True` is not `1`, but `1` is `1.0`."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, (list, tuple)):
        return ("list", tuple(map(value_key, value)))
    if isinstance(value, dict):
        return ("dict", frozenset((name, value_key(item)) for name, item in value.items()))
    return value


def same(a: object, b: object) -> bool:
    """True if `a` and `b` are equal as JSON values; see `value_key`."""
    return value_key(a) == value_key(b)


class ByParents(Generic[T]):
    """A choice by the values of one or several parent parameters of the same pass."""

    def __init__(self, parents: str | Sequence[str], support: Support[T], default: T) -> None:
        if isinstance(parents, str):
            parents = (parents,)
        self.parents = tuple(parents)
        if not self.parents:
            raise ValueError("needs at least one parent")
        cases: list[tuple[tuple[Value, ...], T]] = []
        self._by_key: dict[Hashable, T] = {}
        for case, branch in support.items():
            values = case
            if not isinstance(case, tuple):
                values = (case,)
            if len(values) != len(self.parents):
                raise ValueError(f"support key {case!r} must have {len(self.parents)} value(s), one per parent")
            cases.append((values, branch))
            self._by_key.setdefault(value_key(values), branch)
        self.support = tuple(cases)
        self.default = default

    def choose(self, config: Mapping[str, Value]) -> T:
        """The branch for the parents' values in `config`."""
        return self._by_key.get(value_key(list(map(config.get, self.parents))), self.default)

    @property
    def branches(self) -> tuple[T, ...]:
        """All branches, the default last."""
        return (*(branch for _, branch in self.support), self.default)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.parents!r}, {dict(self.support)!r}, default={self.default!r})"


class Conditional(ByParents[Branch], SearchParameter):
    """Search values that depend on the values of `parents` (parameters of the same pass, searched or fixed).

    `support` maps a tuple of parent values (one value where there is one parent) to a search parameter, `IGNORED`
    (takes its default) or `INVALID`; a combination that it does not list takes `default`, which is `INVALID` unless
    given.
    """

    def __init__(self, parents: str | Sequence[str], support: Support[Branch], default: Branch = INVALID) -> None:
        super().__init__(parents, support, default)

    @property
    def all_parents(self) -> tuple[str, ...]:
        """Its parents and the parents of the conditions nested in its branches."""
        parents = dict.fromkeys(self.parents)
        for branch in self.branches:
            if isinstance(branch, Conditional):
                parents.update(dict.fromkeys(branch.all_parents))
        return tuple(parents)

    @property
    def varies(self) -> bool:
        """True if different parent values can offer different search values."""
        offers: set[Hashable] = set()
        for branch in self.branches:
            if isinstance(branch, Conditional):
                return True
            if isinstance(branch, SearchParameter):
                offers.add(value_key(branch.values()))
        return len(offers) > 1

    def resolve(self, config: Mapping[str, Value]) -> Branch:
        """The search parameter, `IGNORED` or `INVALID` that applies to the parents' values in `config`."""
        branch: Branch = self
        while isinstance(branch, Conditional):
            branch = branch.choose(config)
        return branch

    def all_values(self) -> tuple[Value, ...]:
        values: dict[Hashable, Value] = {}
        for branch in self.branches:
            if isinstance(branch, SearchParameter):
                for value in branch.all_values():
                    values.setdefault(value_key(value), value)
        return tuple(values.values())

    def map(self, change: Callable[[SearchParameter], Branch]) -> Conditional:
        """A copy with `change` applied to its branches and to the branches of nested conditions; sentinels stay."""

        def changed(branch: Branch) -> Branch:
            if isinstance(branch, Conditional):
                return branch.map(change)
            if isinstance(branch, SearchParameter):
                return change(branch)
            return branch

        support = {values: changed(branch) for values, branch in self.support}
        return Conditional(self.parents, support, changed(self.default))

    def restrict(self, allows: Callable[[Value], bool]) -> Conditional:
        return self.map(lambda branch: branch.restrict(allows))


class ConditionalDefault(ByParents[Value]):
    """A default that depends on the values of `parents`; `default` for combinations that `support` does not list."""

    def __init__(self, parents: str | Sequence[str], support: Support[Value], default: Value = None) -> None:
        super().__init__(parents, support, default)


Definition: TypeAlias = Branch | ConditionalDefault | Value
"""A search parameter, a condition, a sentinel, or a plain value."""


def definition_to_json(definition: Definition) -> dict[str, JsonValue]:
    """A search parameter, condition, sentinel or plain value as JSON."""
    if isinstance(definition, Sentinel):
        return {"kind": repr(definition)}
    if isinstance(definition, (Conditional, ConditionalDefault)):
        cases: list[JsonValue] = []
        for values, branch in definition.support:
            cases.append([list(values), definition_to_json(branch)])
        return {
            "kind": type(definition).__name__,
            "parents": list(definition.parents),
            "cases": cases,
            "default": definition_to_json(definition.default),
        }
    if isinstance(definition, SearchParameter):
        kind = "Boolean" if isinstance(definition, Boolean) else "Categorical"
        return {"kind": kind, "values": list(definition.values())}
    return {"kind": "value", "value": definition}


def definition_from_json(data: JsonObject) -> Definition:
    """Read what `definition_to_json` wrote; numeric ranges come back as `Categorical` of the same values."""
    match data["kind"]:
        case "Conditional" | "ConditionalDefault" as kind:
            by_parents = Conditional if kind == "Conditional" else ConditionalDefault
            support: dict[Hashable, Any] = {}
            for values, branch in cast(Sequence[tuple[JsonValue, JsonObject]], data["cases"]):
                support[_as_tuples(values)] = definition_from_json(branch)
            default: Any = definition_from_json(cast(JsonObject, data["default"]))
            return by_parents(cast(Sequence[str], data["parents"]), support, default)
        case "Categorical":
            return Categorical(data["values"])
        case "Boolean":
            return Boolean()
        case "INVALID":
            return INVALID
        case "IGNORED":
            return IGNORED
    return data["value"]


def _as_tuples(value: JsonValue) -> Hashable:
    if isinstance(value, (list, tuple)):
        return tuple(map(_as_tuples, value))
    return cast(Hashable, value)
