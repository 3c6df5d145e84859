"""A node of the pass graph: a pass and its parameters (`passes:`).

A parameter is fixed, searched (a list, a range, the pass's own values), or the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias, cast

from pydantic import Field, JsonValue, ValidationError, field_validator

from autoopt.space import Categorical, Float, Integer, SearchParameter, Value
from autoopt.spec.objectives import Objectives
from autoopt.spec.source import FieldError, below
from autoopt.spec.strict_model import StrictModel, problems_of
from autoopt.spec.targets import HostSpec

Params: TypeAlias = Literal["all", "none"]


@dataclass(frozen=True)
class Fixed:
    """One value; not searched."""

    value: Value


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


class PassNode(StrictModel):
    """One node. A bare text is the pass's name; without `pass`, the node id is."""

    short: ClassVar[str] = "pass"

    pass_name: str = Field(default="", alias="pass")
    """Name of the pass (`autoopt passes list`); the node id if it is not given."""
    params: dict[str, JsonValue] | Literal["search", "default"] = Field(default_factory=dict)
    """Parameters by name: a value, `{search: [...]}`, `{search: {low, high, step, count, log}}`, `search` or `default`;
    `search` for all: every parameter's own search values."""
    search: Params | None = None
    """True to search parameters that `params` does not name; overrides the setting of the search."""
    host: HostSpec | None = None
    """Host on which the pass runs; the DAG's host if it is not given."""
    objectives: Objectives | None = None
    """Objectives of a pass-by-pass search after this pass; the run's objectives if it is not given."""

    @field_validator("params", mode="before")
    @classmethod
    def _read_params(cls, value: object) -> object:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            if value in ("search", "default"):
                return value
            raise FieldError("must be a mapping of parameters, or search, or default")
        for name, setting in value.items():
            with below(name):
                read_setting(setting)
        return dict(value)

    @cached_property
    def settings(self) -> Mapping[str, Setting]:
        """The parameters that the user set, by name."""
        if isinstance(self.params, str):
            return {}
        return {name: read_setting(value) for name, value in self.params.items()}

    def searches_all(self, default: Params) -> bool:
        """Tell if parameters that are not set are searched; `default` is the setting of the search."""
        if isinstance(self.params, str):
            return self.params == "search"
        return (self.search or default) == "all"


def read_setting(value: object) -> Setting:
    """Read a JSON value as a setting.

    Raises:
        FieldError: a malformed search.
    """
    if value == "search":
        return OwnSearch()
    if value == "default":
        return OwnDefault()
    if isinstance(value, Mapping) and set(value) == {"search"}:
        with below("search"):
            return Searched(_read_search(value["search"]))
    return Fixed(cast(Value, value))


def _read_search(value: object) -> SearchParameter:
    if isinstance(value, list):
        if not value:
            raise FieldError("needs at least one value")
        return Categorical(value)
    if not isinstance(value, Mapping):
        raise FieldError("must be a list of values or {low, high, step}", remedy="write [value, ...]")
    try:
        limits = _Range.model_validate(value)
    except ValidationError as error:
        raise problems_of(error)[0] from None
    is_whole = all(isinstance(number, int) for number in value.values())
    try:
        if limits.count is None and is_whole:
            return Integer(value["low"], value["high"], step=value.get("step"), log=limits.log)
        return Float(limits.low, limits.high, step=limits.step, count=limits.count, log=limits.log)
    except ValueError as error:
        raise FieldError(str(error)) from error


class _Range(StrictModel):
    """A range that is searched: of whole numbers if all its numbers are whole and it has no `count`."""

    low: float
    high: float
    step: float | None = None
    count: int | None = None
    log: bool = False
