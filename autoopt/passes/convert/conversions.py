"""Conversions of ONNX models: operator set, IR version, functions and input types."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.model.lazy_imports import ir, ir_passes, onnx
from autoopt.model.tensors import names_of
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.casts import cast_input
from autoopt.passes.onnx_tools.functions import expand_operators, inline_functions
from autoopt.passes.onnx_tools.graphs import caller_inputs, is_standard, rename_inputs, walk_nodes
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.onnx_tools.opsets import convert_opset, ir_version_for, opset
from autoopt.registry import Minimum
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

FALLBACK_OPSETS: Final = (23, 21, 19, 17, 13)
"""Opsets tried in order if the converter fails at the requested one."""


class OpsetConversion(Pass):
    """Converts the model to a newer version of the ai.onnx operators.

    Never converts down, because that loses operators. If a converter fails, the other one is tried, then the next lower
    version.
    """

    version = 3
    takes = "outline"
    target_bound = False
    conflicts = RUNTIME_BOUND
    serialized_copies = 0.0
    memory_factor = 6.2  # a model of 151 MB did not fit in 1.08 GB, and fitted in 1.15
    libraries = ("onnx", "onnxscript")
    aliases = ("opset_convert",)

    target_opset: Annotated[int, Minimum(1), Categorical(17, 19, 21, 23), "version of the ai.onnx operators"] = 21
    converter: Annotated[
        Literal["onnxscript", "onnx"], Categorical("onnxscript", "onnx"), "library that is tried first"
    ] = "onnxscript"

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
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

    target_bound = False
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
    takes = "outline"
    serialized_copies = 0.0
    target_bound = False
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND

    def run(self, model: ModelProto) -> ModelProto | None:
        if not model.functions:
            return None
        return inline_functions(model)


class ExpandFunctions(Pass):
    """Replaces operators that ONNX defines by other operators (Celu, HardSwish, ...) with their definitions."""

    version = 2
    takes = "outline"
    serialized_copies = 0.0
    target_bound = False
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

    def run(self, model: ModelProto) -> ModelProto | None:
        if not any(node.op_type in self.ops and is_standard(node) for node in walk_nodes(model.graph)):
            return None
        return expand_operators(model, self.ops, opset(model))


class Int64InputsToInt32(Pass):
    """Makes int64 inputs int32, with a cast after each, so that callers pass half the bytes.

    Changes the signature: callers can no longer pass values beyond int32.
    """

    needs_ops = ("int64 inputs",)
    target_bound = False
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND

    def run(self, model: ModelProto) -> ModelProto | None:
        wide = [v for v in caller_inputs(model) if v.type.tensor_type.elem_type == onnx.TensorProto.INT64]
        if not wide:
            return None
        for value in wide:
            cast_input(model, value, onnx.TensorProto.INT32)
        return model


class RemoveInputCast(Pass):
    """Takes inputs in the type that the model first casts them to, and removes the cast.

    Changes the signature. Only inputs whose single use is a cast are affected.
    """

    target_bound = False
    conflicts = RUNTIME_BOUND
    needs_ops = ("Cast",)

    def run(self, model: ModelProto) -> ModelProto | None:
        casts = removable_casts(model)
        for name, cast in casts.items():
            value = next(value for value in model.graph.input if value.name == name)
            value.type.tensor_type.elem_type = next(a.i for a in cast.attribute if a.name == "to")
            rename_inputs(walk_nodes(model.graph), {cast.output[0]: name})
        for cast in casts.values():
            model.graph.node.remove(cast)
        if not casts:
            return None
        return model


def removable_casts(model: ModelProto) -> dict[str, NodeProto]:
    """Find inputs whose only use is a Cast in the main graph; returns the casts by input.

    Neither side of the cast may be a model output.
    """
    readers: dict[str, list[NodeProto]] = defaultdict(list)
    for node in walk_nodes(model.graph):
        for name in node.input:
            readers[name].append(node)
    outputs = names_of(model.graph.output)
    casts = {}
    for value in model.graph.input:
        if len(readers[value.name]) != 1 or value.name in outputs:
            continue
        reader = readers[value.name][0]
        if reader.op_type == "Cast" and reader.output[0] not in outputs and reader in model.graph.node:
            casts[value.name] = reader
    return casts
