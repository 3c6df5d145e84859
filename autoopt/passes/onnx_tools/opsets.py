"""Versions of a model: operator sets and IR version, read and raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, walk_nodes

if TYPE_CHECKING:
    from onnx import ModelProto


def opset(model: ModelProto) -> int:
    """Version of the standard operators; 0 if the model does not import them."""
    return max((entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS), default=0)


def at_least_opset(model: ModelProto, version: int) -> ModelProto:
    """Return the model at opset `version` or later, converted if it is older, with its IR version raised to match.

    Raises:
        Refused: the model cannot be converted, or does not use the standard operators.
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
        raise Refused(f"needs opset {version}; the model at opset {current} cannot be converted: {error}") from error
    converted.ir_version = max(converted.ir_version, ir_version_for(version), model.ir_version)
    return converted


def ir_version_for(version: int) -> int:
    """Lowest IR version that a model of this opset may have."""
    import onnx

    return int(onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", version)]))


def import_domain(model: ModelProto, domain: str) -> None:
    """Import `domain` if nodes use it and the import is missing, in place. Some libraries forget it."""
    imported = any(entry.domain == domain for entry in model.opset_import)
    if not imported and any(node.domain == domain for node in walk_nodes(model.graph)):
        model.opset_import.add(domain=domain, version=1)
