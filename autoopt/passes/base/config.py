"""Full configurations: the user's parameters, completed with defaults and checked against the `PassInfo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue
from autoopt.registry import REQUIRED, PassInfo
from autoopt.space import ConditionalDefault, NodeSpace

if TYPE_CHECKING:
    from pydantic import BaseModel


def full_config(info: PassInfo, params: JsonObject) -> dict[str, JsonValue]:
    """Complete `params` with the defaults of the pass, conditional ones included, and check them.

    Returns:
        All parameters by name, sorted.

    Raises:
        InputError: an unknown parameter, a missing required one, or a value of the wrong type.
    """
    params = {**info.presets, **params}
    for name, value in params.items():
        problem = info.parameter(name).check(value)
        if problem is not None:
            raise InputError(f"parameter {name!r} of pass {info.name!r} {problem}")
    for parameter in info.parameters:
        if parameter.default is REQUIRED and parameter.name not in params:
            raise InputError(f"pass {info.name!r} needs parameter {parameter.name!r}")
    return NodeSpace(fixed=dict(params), defaults=info.defaults).config({})


def config_class(info: PassInfo) -> type[BaseModel]:
    """Make a pydantic model with one field per parameter.

    Missing parameters take the pass's defaults, including those that depend on other parameters. Unknown fields are
    errors.
    """
    from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

    conditional = {name: value for name, value in info.defaults.items() if isinstance(value, ConditionalDefault)}
    constant = {name: value for name, value in info.defaults.items() if not isinstance(value, ConditionalDefault)}
    fields: dict[str, Any] = {}  # as `create_model` declares them
    for parameter in info.parameters:
        annotation = str if parameter.category == "object" else parameter.annotation
        default: object = constant.get(parameter.name)  # None for a conditional default, which the validator fills in
        if parameter.default is REQUIRED:
            default = ...
        fields[parameter.name] = (annotation, Field(default, description=parameter.description or None))

    class Base(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)

        @model_validator(mode="before")
        @classmethod
        def _fill_conditional_defaults(cls, data: object) -> object:
            if not isinstance(data, dict) or not conditional:
                return data
            missing = {name: default for name, default in conditional.items() if name not in data}
            return {**_resolve(missing, {**constant, **data}), **data}

    return create_model(f"{info.name}_config", __base__=Base, **fields)


def _resolve(conditional: Mapping[str, ConditionalDefault], values: JsonObject) -> dict[str, JsonValue]:
    """Evaluate conditional defaults for the `values` of all other parameters."""
    fixed = dict(values)
    for default in conditional.values():
        for parent in default.parents:
            if parent not in conditional:
                fixed.setdefault(parent, None)
    config = NodeSpace(fixed=fixed, defaults=dict(conditional)).config({})
    return {name: config[name] for name in conditional}
