"""A pass object from a registered class or function and a full configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from autoopt.passes.base.contract import Refused
from autoopt.passes.base.optimization_pass import Pass
from autoopt.registry import PassInfo, registry


class FunctionPass(Pass):
    """A registered function `(model, **parameters) -> model` as a pass; its attributes stand for class attributes."""

    def __init__(self, function: Callable[..., Any], params: Mapping[str, Any]) -> None:
        super().__init__()
        self._function, self._params = function, dict(params)
        for name in ("takes", "tolerance", "touches", "session_only", "analysis", "requires"):
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))

    def run(self, model: Any) -> Any:
        return self._function(model, **self._params)


def build_pass(
    info: PassInfo, config: Mapping[str, Any], objects: Mapping[str, Any] | None = None, data_root: str = ""
) -> Pass:
    """The pass of `info` with `config`; names of user objects become the objects, data paths are put below
    `data_root`.

    Raises:
        Refused: the user script lacks an object that a parameter names.
    """
    params = dict(config)
    for parameter in info.parameters:
        value = params.get(parameter.name)
        if parameter.category == "object" and isinstance(value, str):
            if value not in (objects or {}):
                raise Refused(f"parameter {parameter.name!r}: the user script has no {value!r}")
            params[parameter.name] = (objects or {})[value]
        elif parameter.category == "data" and isinstance(value, str):
            from autoopt.spec.data import resolve_path

            params[parameter.name] = resolve_path(data_root, value)
    item = registry().get(info.name)
    return cast(Pass, item(**params)) if inspect.isclass(item) else FunctionPass(item, params)
