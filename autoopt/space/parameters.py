"""Search parameters: the values that a pass parameter may take, and how they depend on other parameters."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

Value: TypeAlias = Any  # a JSON value: str, int, float, bool, None, list, dict

MAX_VALUES: Final = 10_000
"""Most values of one parameter."""


class Sentinel:
    """`INVALID` or `IGNORED`; there are no others."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


INVALID: Final = Sentinel("INVALID")
"""In `Conditional`: these parent values together are not allowed at all."""
IGNORED: Final = Sentinel("IGNORED")
"""In `Conditional`: the parameter means nothing here; it keeps its default and is not part of the point."""


class SearchParameter:
    """Something that is searched: `values()` are its options, in order, without repeats."""

    def values(self) -> tuple[Value, ...]:
        raise TypeError(f"{type(self).__name__} has values only once its parents are known")

    def __len__(self) -> int:
        return len(self.values())


class Categorical(SearchParameter):
    """One of the given values: `Categorical("QInt8", "QUInt8")`; a single list or tuple is the list of values."""

    def __init__(self, *values: Value) -> None:
        if len(values) == 1 and isinstance(values[0], (list, tuple)) and values[0]:
            values = tuple(values[0])
        if not values:
            raise ValueError("Categorical needs at least one value")
        kept: dict[Hashable, Value] = {}
        for value in values:
            kept.setdefault(key(value), value)
        self._values = tuple(kept.values())

    def values(self) -> tuple[Value, ...]:
        return self._values

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._values))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Categorical) and same(list(self._values), list(other._values))

    def __hash__(self) -> int:
        return hash(key(list(self._values)))


class Boolean(Categorical):
    """`True` or `False`."""

    def __init__(self) -> None:
        super().__init__(True, False)

    def __repr__(self) -> str:
        return "Boolean()"


@dataclass(frozen=True)
class Integer(SearchParameter):
    """`low, low + step, ...` up to `high` inclusive; with `log`, each value is `step` (default 2) times the last."""

    low: int
    high: int
    step: int | None = None
    log: bool = False

    def __post_init__(self) -> None:
        step = self.step if self.step is not None else (2 if self.log else 1)
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        if step < (2 if self.log else 1):
            raise ValueError(f"step must be at least {2 if self.log else 1}")
        if self.log and self.low < 1:
            raise ValueError("log needs low >= 1")
        if not self.log and (self.high - self.low) // step >= MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values; give a larger step")

    def values(self) -> tuple[Value, ...]:
        if not self.log:
            return tuple(range(self.low, self.high + 1, self.step or 1))
        out, value = [], self.low
        while value <= self.high:
            out.append(value)
            value *= self.step or 2
        return tuple(out)


@dataclass(frozen=True)
class Float(SearchParameter):
    """Evenly spaced values from `low` to `high`: by `step`, or `count` of them (geometric with `log`)."""

    low: float
    high: float
    step: float | None = None
    count: int | None = None
    log: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)) or self.low > self.high:
            raise ValueError(f"low {self.low} and high {self.high} must be finite and in order")
        if (self.step is None) == (self.count is None):
            raise ValueError("needs exactly one of step or count")
        if self.step is not None and (not math.isfinite(self.step) or self.step <= 0 or self.log):
            raise ValueError("step must be above 0 and finite, and goes without log (use count)")
        if self.count is not None and self.count < (2 if self.high > self.low else 1):
            raise ValueError("count must be at least 2")
        if self.log and self.low <= 0:
            raise ValueError("log needs low > 0")
        number = self.count if self.count is not None else (self.high - self.low) / (self.step or 1.0)
        if number > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values; give a larger step")

    def values(self) -> tuple[Value, ...]:
        if self.step is not None:
            number = math.floor((self.high - self.low) / self.step + 1e-9) + 1
            steps = (float(f"{self.low + i * self.step:.12g}") for i in range(number))
            return tuple(dict.fromkeys(min(float(self.high), max(float(self.low), value)) for value in steps))
        number, low, high = cast(int, self.count), float(self.low), float(self.high)
        parts = [i / (number - 1) for i in range(1, number - 1)]
        if self.log:
            raw = [math.exp(math.log(low) + (math.log(high) - math.log(low)) * part) for part in parts]
        else:
            raw = [low * (1 - part) + high * part for part in parts]
        inner = [min(high, max(low, float(f"{value:.12g}"))) for value in raw]
        return tuple(dict.fromkeys((low, *inner, high)))


def key(value: Value) -> Hashable:
    """What makes a JSON value the same value: `True` is not `1`, but `1` is `1.0`."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, (list, tuple)):
        return ("list", tuple(key(item) for item in value))
    if isinstance(value, dict):
        return ("dict", frozenset((name, key(item)) for name, item in value.items()))
    return cast(Hashable, value)


def same(a: Value, b: Value) -> bool:
    """Equal as JSON values; see `key`."""
    return key(a) == key(b)


class ByParents:
    """A choice by the values of one or several parent parameters of the same pass."""

    def __init__(self, parents: str | Sequence[str], support: Mapping[Any, Any], default: Any) -> None:
        self.parents = (parents,) if isinstance(parents, str) else tuple(parents)
        if not self.parents:
            raise ValueError("needs at least one parent")
        cases: list[tuple[tuple[Value, ...], Any]] = []
        for given, branch in support.items():
            values = given if isinstance(given, tuple) else (given,)
            if len(values) != len(self.parents):
                raise ValueError(f"support key {given!r} must have {len(self.parents)} value(s), one per parent")
            cases.append((values, branch))
        self.support = tuple(cases)
        self.default = default
        self._by_key: dict[Hashable, Any] = {}
        for values, branch in cases:
            self._by_key.setdefault(key(values), branch)

    def choose(self, config: Mapping[str, Value]) -> Any:
        """The branch for the parents' values in `config`."""
        return self._by_key.get(key([config.get(parent) for parent in self.parents]), self.default)

    @property
    def branches(self) -> tuple[Any, ...]:
        """All that may be chosen."""
        return (*(branch for _, branch in self.support), self.default)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.parents!r}, {dict(self.support)!r}, default={self.default!r})"


Branch: TypeAlias = SearchParameter | Sentinel


class Conditional(ByParents, SearchParameter):
    """Search values that depend on the values of `parents` (parameters of the same pass, searched or fixed).

    `support` maps a tuple of parent values (one value where there is one parent) to a search parameter, `IGNORED`
    (keeps its default) or `INVALID`; what it does not list takes `default`, which is `INVALID` unless given.
    """

    def __init__(self, parents: str | Sequence[str], support: Mapping[Any, Branch], default: Branch = INVALID) -> None:
        super().__init__(parents, support, default)

    @property
    def all_parents(self) -> tuple[str, ...]:
        """Its parents and those of the conditions nested in its branches."""
        nested = (p for b in self.branches if isinstance(b, Conditional) for p in b.all_parents)
        return tuple(dict.fromkeys((*self.parents, *nested)))

    @property
    def varies(self) -> bool:
        """Whether different parent values offer different search values."""
        kinds = {
            key(list(b.values()))
            for b in self.branches
            if isinstance(b, SearchParameter) and not isinstance(b, Conditional)
        }
        return len(kinds) > 1 or any(isinstance(b, Conditional) for b in self.branches)

    def resolve(self, config: Mapping[str, Value]) -> SearchParameter | Sentinel:
        """The search parameter, `IGNORED` or `INVALID` that holds for the parents' values in `config`."""
        branch: Any = self
        while isinstance(branch, Conditional):
            branch = branch.choose(config)
        return cast("SearchParameter | Sentinel", branch)


class ConditionalDefault(ByParents):
    """A default that depends on the values of `parents`; `default` where `support` does not list them."""

    def __init__(self, parents: str | Sequence[str], support: Mapping[Any, Value], default: Value = None) -> None:
        super().__init__(parents, support, default)


def to_json(parameter: Any) -> Any:
    """A search parameter, condition or sentinel as JSON; plain values as they are, wrapped."""
    if isinstance(parameter, Sentinel):
        return {"kind": repr(parameter)}
    if isinstance(parameter, ByParents):
        cases = [[list(values), to_json(branch)] for values, branch in parameter.support]
        kind = type(parameter).__name__
        return {"kind": kind, "parents": list(parameter.parents), "cases": cases, "default": to_json(parameter.default)}
    if isinstance(parameter, SearchParameter):
        return {
            "kind": "Boolean" if isinstance(parameter, Boolean) else "Categorical",
            "values": list(parameter.values()),
        }
    return {"kind": "value", "value": parameter}


def from_json(data: Mapping[str, Any]) -> Any:
    """The reverse of `to_json`; numeric ranges come back as `Categorical` of the same values."""
    kind = data["kind"]
    if kind in ("INVALID", "IGNORED"):
        return INVALID if kind == "INVALID" else IGNORED
    if kind in ("Conditional", "ConditionalDefault"):
        support = {_frozen(values): from_json(branch) for values, branch in data["cases"]}
        made = Conditional if kind == "Conditional" else ConditionalDefault
        return made(data["parents"], support, from_json(data["default"]))
    if kind == "value":
        return data["value"]
    return Boolean() if kind == "Boolean" else Categorical(list(data["values"]))


def _frozen(value: Value) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, (list, tuple)) else value
