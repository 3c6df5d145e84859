"""Conversions of ONNX models: operator set, IR version, functions and input types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.model.lazy_imports import convenience, ir, ir_passes
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.base.conversion import to_proto
from autoopt.passes.onnx_tools.graphs import is_standard, walk_nodes
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.onnx_tools.opsets import convert_opset, expand_operators, inline_functions, ir_version_for, opset
from autoopt.passes.onnx_tools.values import give_types, given_inputs
from autoopt.registry import Minimum
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto

FALLBACK_OPSETS: Final = (23, 21, 19, 17, 13)
"""Opsets tried in order if the converter fails at the requested one."""


class OpsetConversion(Pass):
    """Converts the model to a newer version of the ai.onnx operators.

    Never converts down, because that loses operators. If a converter fails, the other one is tried, then the next lower
    version.
    """

    version = 3
    depends_on = "model"
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnxscript")
    aliases = ("opset_convert",)

    target_opset: Annotated[int, Minimum(1), Categorical(17, 19, 21, 23), "version of the ai.onnx operators"] = 21
    converter: Annotated[
        Literal["onnxscript", "onnx"], Categorical("onnxscript", "onnx"), "library that is tried first"
    ] = "onnxscript"

    def run(self, source: ir.Model) -> ModelProto | Retry | None:
        model = to_proto(source)
        current = opset(model)
        if current in (0, self.target_opset):
            return None
        if current > self.target_opset:
            raise Refused(f"the model is at opset {current}; converting down to {self.target_opset} loses operators")
        try:
            return convert_opset(model, self.target_opset, self.converter)
        except ValueError as error:
            for version in FALLBACK_OPSETS:
                if current < version < self.target_opset:
                    return Retry(f"cannot convert to opset {self.target_opset}: {error}", {"target_opset": version})
            raise Refused(f"cannot convert from opset {current} to {self.target_opset}: {error}") from error


class IrUpgrade(Pass):
    """Raises the IR version and removes weights from the inputs, where old exporters list them.

    The runtime turns models of IR version 3 into invalid ones when it optimizes them offline.
    """

    depends_on = "model"
    tolerance = "equal"  # the runtime folds and fuses weights only where they are not inputs
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    ir_version: Annotated[int, Minimum(1), "lowest IR version of the result"] = 8

    def run(self, model: ir.Model) -> ir.Model | None:
        version = model.opset_imports.get("") or model.opset_imports.get("ai.onnx", 1)
        model.ir_version = max(model.ir_version, self.ir_version, ir_version_for(version))
        return apply_ir_passes(model, ir_passes.RemoveInitializersFromInputsPass())


class InlineFunctions(Pass):
    """Replaces calls of the model's own functions with their bodies, so that other passes can optimize them."""

    version = 3
    needs_ops = ("local functions",)
    depends_on = "model"
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND

    def run(self, model: ir.Model) -> ModelProto | None:
        if not model.functions:
            return None
        return inline_functions(to_proto(model))


class ExpandFunctions(Pass):
    """Replaces operators that ONNX defines by other operators (Celu, HardSwish, ...) with their definitions."""

    version = 2
    depends_on = "model"
    needs_ops = ("Celu", "HardSwish", "GreaterOrEqual", "LessOrEqual", "Gelu", "Mish", "ThresholdedRelu")
    conflicts = RUNTIME_BOUND

    ops: Annotated[
        list[str],
        Categorical(
            ["Celu", "HardSwish", "GreaterOrEqual", "LessOrEqual"],
            ["Celu", "HardSwish"],
            ["GreaterOrEqual", "LessOrEqual"],
        ),
        "operators to expand",
    ] = ["Celu", "HardSwish", "GreaterOrEqual", "LessOrEqual"]

    def run(self, source: ir.Model) -> ModelProto | None:
        model = to_proto(source)
        if not any(node.op_type in self.ops and is_standard(node) for node in walk_nodes(model.graph)):
            return None
        return expand_operators(model, self.ops, opset(model))


class Int64InputsToInt32(Pass):
    """Makes int64 inputs int32, with a cast after each, so that callers pass half the bytes.

    Changes the signature: callers can no longer pass values beyond int32.
    """

    needs_ops = ("int64 inputs",)
    depends_on = "model"
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND

    def run(self, model: ir.Model) -> ir.Model | None:
        wide = [value.name for value in given_inputs(model.graph) if value.dtype == ir.DataType.INT64]
        if not give_types(model, dict.fromkeys(map(str, wide), ir.DataType.INT32)):
            return None
        return model


class RemoveInputCast(Pass):
    """Takes inputs in the type that the model first casts them to, and removes the cast.

    Changes the signature. Only inputs whose single use is a cast are affected.
    """

    depends_on = "model"
    conflicts = RUNTIME_BOUND
    needs_ops = ("Cast",)

    def run(self, model: ir.Model) -> ir.Model | None:
        changed = False
        for value in given_inputs(model.graph):
            cast = _only_cast(value)
            if cast is not None:
                value.dtype, changed = ir.DataType(cast.attributes.get_int("to")), True
                convenience.replace_all_uses_with(cast.outputs[0], value)
                model.graph.remove(cast, safe=True)
        return model if changed else None


def _only_cast(value: ir.Value) -> ir.Node | None:
    """The Cast in the main graph that is all that reads an input; neither side of it may be an output."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    reader = uses[0].node
    if reader.op_type != "Cast" or reader.outputs[0].is_graph_output() or reader.graph is not value.graph:
        return None
    return reader
