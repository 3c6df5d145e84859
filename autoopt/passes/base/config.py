"""Full configurations: the user's parameters, completed with defaults and checked against the `PassInfo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autoopt.errors import InputError
from autoopt.registry import REQUIRED, PassInfo
from autoopt.space import ConditionalDefault, NodeSpace

if TYPE_CHECKING:
    from pydantic import BaseModel


def full_config(info: PassInfo, params: Mapping[str, object]) -> dict[str, object]:
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

    conditional: dict[str, ConditionalDefault] = {}
    constant: dict[str, object] = {}
    fields: dict[str, Any] = {}  # as `create_model` declares them
    for parameter in info.parameters:
        default = parameter.default
        if isinstance(default, ConditionalDefault):
            conditional[parameter.name] = default
            default = None  # the validator below fills it in
        elif default is REQUIRED:
            default = ...
        else:
            constant[parameter.name] = default
        annotation = parameter.annotation
        if parameter.category == "object":
            annotation = str
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


def _resolve(conditional: Mapping[str, ConditionalDefault], values: Mapping[str, object]) -> dict[str, object]:
    """Evaluate conditional defaults for the `values` of all other parameters."""
    fixed = dict(values)
    for default in conditional.values():
        for parent in default.parents:
            if parent not in conditional:
                fixed.setdefault(parent, None)
    config = NodeSpace(fixed=fixed, defaults=dict(conditional)).config({})
    return {name: config[name] for name in conditional}
