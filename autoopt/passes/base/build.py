"""Full configurations of passes, checked against their `PassInfo`, and pass objects made from them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue
from autoopt.passes.base.contract import Refused
from autoopt.passes.base.optimization_pass import Pass
from autoopt.registry import REQUIRED, PassInfo, registry
from autoopt.space import NodeSpace


def _function_pass(function: Callable[..., object], params: Mapping[str, object]) -> Pass:
    """The pass of a registered function `(model, **parameters) -> model`; its attributes are those of the class."""
    attributes = {name: getattr(function, name) for name in Pass.__annotations__ if hasattr(function, name)}
    made = type("FunctionPass", (Pass,), {**attributes, "run": staticmethod(partial(function, **params))})
    return cast(Pass, made())


def build_pass(
    info: PassInfo, config: JsonObject, objects: Mapping[str, object] | None = None, data_root: str = ""
) -> Pass:
    """Build the pass of `info` with the full configuration `config`.

    `objects`, by name in the user script, replace the names in parameters of category `object`. Relative paths in
    parameters of category `data` start from the folder or URL `data_root`, those of category `path` from the working
    directory.

    Raises:
        Refused: the user script lacks an object that a parameter names.
    """
    params: dict[str, object] = dict(config)
    for parameter in info.parameters:
        value = params.get(parameter.name)
        if not isinstance(value, str):
            continue
        if parameter.category == "object":
            if objects is None or value not in objects:
                raise Refused(f"parameter {parameter.name!r}: the user script has no {value!r}")
            params[parameter.name] = objects[value]
        elif parameter.category == "path" and value:
            params[parameter.name] = os.path.abspath(value)
        elif parameter.category == "data":
            from autoopt.data.config import resolve_path

            params[parameter.name] = resolve_path(data_root, value)
    item = registry().get(info.name)
    if inspect.isclass(item):
        return cast(Pass, item(**params))
    return _function_pass(item, params)


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
