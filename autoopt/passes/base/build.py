"""Pass objects made from a registered class or function and a full configuration."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from autoopt.json_codec import JsonObject
from autoopt.passes.base.contract import Refused
from autoopt.passes.base.optimization_pass import Pass
from autoopt.registry import PassInfo, registry


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
