"""Full configurations: what the user gave, completed by defaults and checked against the `PassInfo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autoopt.errors import InputError
from autoopt.registry import REQUIRED, PassInfo
from autoopt.space import ConditionalDefault, NodeSpace

if TYPE_CHECKING:
    from pydantic import BaseModel


def full_config(info: PassInfo, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` completed by the defaults (conditional ones too) of the pass and checked; sorted by name.

    Raises:
        InputError: an unknown parameter, a missing required one, or a value of the wrong type.
    """
    params = {**info.presets, **params}
    for name, value in params.items():
        reason = info.parameter(name).check(value)
        if reason is not None:
            raise InputError(f"parameter {name!r} of pass {info.name!r} {reason}")
    missing = [p.name for p in info.parameters if p.default is REQUIRED and p.name not in params]
    if missing:
        raise InputError(f"pass {info.name!r} needs parameter {missing[0]!r}")
    return NodeSpace(fixed=dict(params), defaults=info.defaults).config({})


def config_class(info: PassInfo) -> type[BaseModel]:
    """A pydantic model with one field per parameter; parameters without a value take the pass's defaults, also the
    ones that depend on other parameters. Unknown fields are errors."""
    from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

    conditional = {p.name: p.default for p in info.parameters if isinstance(p.default, ConditionalDefault)}

    class Base(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)

        @model_validator(mode="before")
        @classmethod
        def _conditional_defaults(cls, data: Any) -> Any:
            plain = {p.name: p.default for p in info.parameters if p.name not in conditional}
            if not isinstance(data, dict) or not conditional:
                return data
            return {**{k: v for k, v in _resolve(conditional, {**plain, **data}).items() if k not in data}, **data}

    fields: dict[str, Any] = {}
    for p in info.parameters:
        annotation = str if p.category == "object" else p.annotation
        default = ... if p.default is REQUIRED else None if p.name in conditional else p.default
        fields[p.name] = (annotation, Field(default, description=p.description or None))
    return create_model(f"{info.name}_config", __base__=Base, **fields)


def _resolve(conditional: Mapping[str, ConditionalDefault], given: Mapping[str, Any]) -> dict[str, Any]:
    fixed = {name: value for name, value in given.items() if value is not REQUIRED}
    open_defaults = {name: default for name, default in conditional.items() if name not in fixed}
    for default in list(open_defaults.values()):
        for parent in default.parents:
            fixed.setdefault(parent, None) if parent not in open_defaults else None
    done = NodeSpace(fixed=fixed, defaults=open_defaults).config({})
    return {name: done[name] for name in open_defaults}
