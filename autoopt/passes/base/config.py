"""Full configurations: the user's parameters, completed with defaults and checked against the `PassInfo`."""

from __future__ import annotations

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue
from autoopt.registry import REQUIRED, PassInfo
from autoopt.space import NodeSpace


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
