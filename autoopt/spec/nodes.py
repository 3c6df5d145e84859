"""A node of the pass graph: a pass and its parameters (`passes:`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

from pydantic import Field, JsonValue, field_validator

from autoopt.spec.objectives import Objectives
from autoopt.spec.pass_settings import Setting, read_setting
from autoopt.spec.source import FieldError, below
from autoopt.spec.strict_model import StrictModel
from autoopt.spec.targets import HostSpec

Params: TypeAlias = Literal["all", "none"]


class PassNode(StrictModel):
    """One node. A bare text is the pass's name; without `pass`, the node id is."""

    short: ClassVar[str] = "pass"

    pass_name: str = Field(default="", alias="pass")
    params: dict[str, JsonValue] | Literal["search", "default"] = Field(default_factory=dict)
    """By name: a value, `{search: [...]}`, `{search: {low, high, step, count, log}}`, `search` or `default`;
    `search` for all: every parameter's own search values."""
    search: Params | None = None
    """Whether parameters that `params` does not name are searched; overrides the setting of the search."""
    host: HostSpec | None = None
    objectives: Objectives | None = None
    """What a pass-by-pass search optimizes after this pass; the run's objectives if it is not given."""

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
