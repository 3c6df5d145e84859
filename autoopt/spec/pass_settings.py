"""Values of pass parameters as written: fixed, searched (a list, a range, the pass's own values), or the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from autoopt.errors import did_you_mean
from autoopt.space import Categorical, Float, Integer, SearchParameter
from autoopt.spec.source import FieldError

_RANGE: Final = ("low", "high", "step", "count", "log")


@dataclass(frozen=True)
class Fixed:
    """One value; not searched."""

    value: Any


@dataclass(frozen=True)
class Searched:
    """Searched over these values."""

    values: SearchParameter


@dataclass(frozen=True)
class OwnSearch:
    """Searched over the pass's own values."""


@dataclass(frozen=True)
class OwnDefault:
    """The pass's default."""


Setting: TypeAlias = Fixed | Searched | OwnSearch | OwnDefault


def read_setting(value: Any) -> Setting:
    """The setting that `value` writes.

    Raises:
        FieldError: a search that is none.
    """
    if value == "search":
        return OwnSearch()
    if value == "default":
        return OwnDefault()
    if isinstance(value, Mapping) and set(value) == {"search"}:
        return Searched(_search(value["search"]))
    return Fixed(value)


def _search(value: Any) -> SearchParameter:
    if isinstance(value, list):
        if not value:
            raise FieldError("needs at least one value", place=("search",))
        return Categorical(value)
    if not isinstance(value, Mapping):
        raise FieldError(
            "must be a list of values or {low, high, step}", place=("search",), remedy="write [value, ...]"
        )
    for key in value:
        if key not in _RANGE:
            hint = did_you_mean(key, _RANGE) or f"known: {', '.join(_RANGE)}"
            raise FieldError("unknown field", place=("search", key), remedy=hint)
    for key in ("low", "high"):
        if key not in value:
            raise FieldError("is required", place=("search", key))
    return _range(value)


def _range(value: Mapping[str, Any]) -> SearchParameter:
    numbers = {k: v for k, v in value.items() if k != "log"}
    for key, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise FieldError(f"must be a number, not {number!r}", place=("search", key))
    log = value.get("log", False)
    if not isinstance(log, bool):
        raise FieldError(f"must be true or false, not {log!r}", place=("search", "log"))
    if "count" in numbers and not isinstance(numbers["count"], int):
        raise FieldError("must be a whole number", place=("search", "count"))
    try:
        if "count" not in numbers and all(isinstance(n, int) for n in numbers.values()):
            return Integer(**numbers, log=log)
        return Float(**numbers, log=log)
    except ValueError as error:
        raise FieldError(str(error), place=("search",)) from error
