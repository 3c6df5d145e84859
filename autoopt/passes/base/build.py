"""Pass objects made from a registered class or function and a full configuration."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from autoopt.json_codec import JsonObject
from autoopt.model.lazy_imports import ir
from autoopt.passes.base.contract import Refused
from autoopt.passes.base.optimization_pass import Pass
from autoopt.registry import PassInfo, form_of, registry

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

    from autoopt.passes.base.contract import Retry


class FunctionPass(Pass):
    """A registered function `(model, **parameters) -> model`. Its attributes stand in for class attributes."""

    def __init__(
        self, function: Callable[..., ir.Model | ModelProto | Path | Retry | None], params: Mapping[str, object]
    ) -> None:
        super().__init__()
        self._function = function
        self._params = dict(params)
        for name in Pass.__annotations__:
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))
        self.takes = form_of(function)  # type: ignore[misc]  # of this function, not of the class

    def run(self, model: Any) -> ir.Model | ModelProto | Path | Retry | None:  # noqa: ANN401  see `takes`
        return self._function(model, **self._params)


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
    return FunctionPass(item, params)
