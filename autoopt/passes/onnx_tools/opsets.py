"""Versions of a model: operator sets and IR version, read and raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools.graphs import nodes

if TYPE_CHECKING:
    from onnx import ModelProto


def opset(model: ModelProto) -> int:
    """The version of the default domain; 0 where the model does not import it."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def at_least_opset(model: ModelProto, version: int) -> ModelProto:
    """The model at `version` or above, converted where it is older; its IR version is raised with it.

    Raises:
        Refused: the model cannot be converted, or does not use the default domain at all.
    """
    import onnx

    current = opset(model)
    if current == 0:
        raise Refused("the model does not use the ai.onnx operators")
    if current >= version:
        return model
    try:
        converted: ModelProto = onnx.version_converter.convert_version(model, version)
    except Exception as error:  # the converter raises bare exceptions of several kinds
        raise Refused(f"needs opset {version}, and the model at {current} cannot be converted: {error}") from error
    converted.ir_version = max(converted.ir_version, ir_version_for(version), model.ir_version)
    return converted


def ensure_domain(model: ModelProto, domain: str) -> None:
    """Import `domain` where the model has nodes of it and no such import; some libraries forget it."""
    used = any(node.domain == domain for node in nodes(model))
    if used and all(entry.domain != domain for entry in model.opset_import):
        model.opset_import.add(domain=domain, version=1)


def ir_version_for(version: int) -> int:
    """The lowest IR version that a model of that opset may carry."""
    import onnx

    return int(onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", version)]))
