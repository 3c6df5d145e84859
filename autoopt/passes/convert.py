"""Conversions: operator set, IR version, functions, input types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.irtools import apply_ir
from autoopt.passes.toolbox import graphs, ir_version_for, nodes, opset, quiet
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

LAST = ("ort_graph_optimization", "ort_format")
"""Passes after which no graph pass makes sense: their output is made for one runtime."""
NEWEST_OPSETS = (23, 21, 19, 17, 13)


class OpsetConversion(Pass):
    """Converts the model to a newer version of the ai.onnx operators.

    Never downwards, which loses operators. Where the converter fails, the next lower version is tried.
    """

    target_bound = False
    conflicts = LAST
    libraries = ("onnx", "onnxscript")
    aliases = ("opset_convert", "OnnxOpVersionConversion")

    target_opset: Annotated[int, Categorical(17, 19, 21, 23), "version of the ai.onnx operators"] = 21
    converter: Annotated[Literal["onnxscript", "onnx"], Categorical("onnxscript", "onnx"), "library that converts"] = (
        "onnxscript"
    )

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        current = opset(model)
        if current == 0 or current == self.target_opset:
            return None
        if current > self.target_opset:
            raise Refused(f"the model is at opset {current}; converting down to {self.target_opset} loses operators")
        try:
            made = self._convert(model)
        except Exception as error:  # the converters raise several kinds
            lower = [version for version in NEWEST_OPSETS if current < version < self.target_opset]
            if not lower:
                raise Refused(f"no converter takes it from opset {current} to {self.target_opset}: {error}") from error
            return Retry(f"cannot convert to opset {self.target_opset}: {error}", {"target_opset": lower[0]})
        made.ir_version = max(made.ir_version, model.ir_version, ir_version_for(self.target_opset))
        return made

    def _convert(self, model: ModelProto) -> ModelProto:
        with quiet():
            if self.converter == "onnx":
                import onnx

                made: ModelProto = onnx.version_converter.convert_version(model, self.target_opset)
            else:
                import onnx_ir
                from onnxscript.version_converter import convert_version

                form = onnx_ir.from_proto(model)
                convert_version(form, self.target_opset, fallback=True)
                made = onnx_ir.to_proto(form)
        if opset(made) != self.target_opset:
            raise ValueError(f"the converter stopped at opset {opset(made)}")
        return made


class IrUpgrade(Pass):
    """Raises the IR version and takes weights out of the inputs, as old exporters left them.

    Models of IR version 3 give invalid ones when the runtime optimises them offline.
    """

    target_bound = False
    tolerance = "lossless"
    conflicts = LAST
    libraries = ("onnx", "onnx-ir")

    ir_version: Annotated[int, "lowest IR version to leave"] = 8

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import RemoveInitializersFromInputsPass

        wanted = max(model.ir_version, self.ir_version, ir_version_for(opset(model) or 1))
        model.ir_version = wanted
        return apply_ir(model, RemoveInitializersFromInputsPass())


class InlineFunctions(Pass):
    """Replaces calls of the model's own functions by their bodies, so that other passes see into them."""

    target_bound = False
    tolerance = "lossless"
    conflicts = LAST
    libraries = ("onnx", "onnx-ir")

    inliner: Annotated[Literal["onnx-ir", "onnx"], Categorical("onnx-ir", "onnx"), "library that inlines"] = "onnx-ir"

    def run(self, model: ModelProto) -> ModelProto | None:
        if not model.functions:
            return None
        if self.inliner == "onnx":
            from onnx import inliner

            made: ModelProto = inliner.inline_local_functions(model, True)
            return made
        from onnx_ir.passes.common import InlinePass, RemoveUnusedFunctionsPass

        return apply_ir(model, InlinePass(), RemoveUnusedFunctionsPass())


class ExpandFunctions(Pass):
    """Replaces operators that ONNX defines by others (Celu, HardSwish, ...) by those definitions."""

    target_bound = False
    needs_ops = ("Celu", "HardSwish", "GreaterOrEqual", "LessOrEqual", "Gelu", "Mish", "ThresholdedRelu")
    conflicts = LAST
    aliases = ("replace_celu", "replace_hardswish", "replace_greater_or_equal", "replace_less_or_equal")

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
        from onnx import inliner

        if not any(node.op_type in self.ops and node.domain in ("", "ai.onnx") for node in nodes(model)):
            return None
        wanted = [("", op) for op in self.ops]
        made: ModelProto = inliner.inline_selected_functions(model, wanted, False, True)
        return made


class Int64InputsToInt32(Pass):
    """Makes int64 inputs int32, with a cast behind each: callers hand over half the bytes.

    The signature changes; values beyond int32 can no longer be given.
    """

    target_bound = False
    tolerance = "lossless"
    conflicts = LAST
    aliases = ("int64_to_int32",)

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx import TensorProto, helper

        weights = {tensor.name for tensor in model.graph.initializer}
        casts = []
        for value in model.graph.input:
            if value.type.tensor_type.elem_type != TensorProto.INT64 or value.name in weights:
                continue
            value.type.tensor_type.elem_type = TensorProto.INT32
            wide = _free_name(model, f"{value.name}_int64")
            for graph in graphs(model.graph):
                _rename_uses(graph, value.name, wide)
            casts.append(helper.make_node("Cast", [value.name], [wide], name=f"{wide}_cast", to=TensorProto.INT64))
        if not casts:
            return None
        kept = list(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend([*casts, *kept])
        return model


class RemoveInputCast(Pass):
    """Takes inputs in the type that the model casts them to first, and drops the cast.

    The signature changes; only casts that are all an input is used for are dropped.
    """

    target_bound = False
    conflicts = LAST
    needs_ops = ("Cast",)

    def run(self, model: ModelProto) -> ModelProto | None:
        uses: dict[str, list[NodeProto]] = {}
        for node in nodes(model):
            for name in node.input:
                uses.setdefault(name, []).append(node)
        outputs = {value.name for value in model.graph.output}
        dropped = []
        for value in model.graph.input:
            users = uses.get(value.name, [])
            if len(users) != 1 or users[0].op_type != "Cast" or users[0] not in model.graph.node:
                continue
            if users[0].output[0] in outputs or value.name in outputs:
                continue
            value.type.tensor_type.elem_type = next(a.i for a in users[0].attribute if a.name == "to")
            for graph in graphs(model.graph):
                _rename_uses(graph, users[0].output[0], value.name)
            dropped.append(users[0])
        for node in dropped:
            model.graph.node.remove(node)
        return model if dropped else None


def _rename_uses(graph: GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for position, name in enumerate(node.input):
            if name == old:
                node.input[position] = new


def _free_name(model: ModelProto, wanted: str) -> str:
    taken = {name for node in nodes(model) for name in node.output}
    taken.update(value.name for graph in graphs(model.graph) for value in (*graph.input, *graph.initializer))
    while wanted in taken:
        wanted += "_"
    return wanted
