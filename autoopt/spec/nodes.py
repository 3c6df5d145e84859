"""A node of the pass graph: a pass and its parameters (`passes:`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from autoopt.spec.objectives import Objectives
from autoopt.spec.pass_settings import Setting, read_setting
from autoopt.spec.source import FieldError
from autoopt.spec.strict_model import StrictModel
from autoopt.spec.targets import HostSpec

Search = Literal["all", "none"]


class PassNode(StrictModel):
    """One node. A bare text is the pass's name; without `pass` the node id is."""

    short: ClassVar[str] = "pass"

    pass_name: str = Field(default="", alias="pass")
    params: dict[str, Any] | Literal["search", "default"] = Field(default_factory=dict)
    """By name: a value, `{search: [...]}`, `{search: {low, high, step, count, log}}`, `search` or `default`;
    `search` for all: every parameter's own search values."""
    search: Search | None = None
    """Whether parameters that `params` does not name are searched; overrides the run's setting."""
    host: HostSpec | None = None
    objectives: Objectives | None = None
    """What pass-by-pass search looks at after this pass; the run's objectives where it is not given."""

    @field_validator("params", mode="before")
    @classmethod
    def _read_params(cls, value: Any) -> Any:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            if value in ("search", "default"):
                return value
            raise FieldError("must be a mapping of parameters, or search, or default")
        for name, setting in value.items():
            try:
                read_setting(setting)
            except FieldError as wrong:
                raise FieldError(wrong.reason, place=(name, *wrong.place), remedy=wrong.remedy) from None
        return dict(value)

    @cached_property
    def settings(self) -> Mapping[str, Setting]:
        """The parameters that the user set, by name."""
        if isinstance(self.params, str):
            return {}
        return {name: read_setting(value) for name, value in self.params.items()}

    def searches_all(self, run: Search) -> bool:
        """Whether parameters that are not set are searched."""
        if isinstance(self.params, str):
            return self.params == "search"
        return (self.search or run) == "all"
