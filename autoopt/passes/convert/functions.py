"""Function calls and function operators replaced by their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import is_standard, walk_nodes
from autoopt.passes.onnx_tools.rewriting import apply_ir_passes
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


class InlineFunctions(Pass):
    """Replaces calls of the model's own functions with their bodies, so that other passes can optimize them."""

    target_bound = False
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    inliner: Annotated[Literal["onnx-ir", "onnx"], Categorical("onnx-ir", "onnx"), "library that inlines"] = "onnx-ir"

    def run(self, model: ModelProto) -> ModelProto | None:
        if not model.functions:
            return None
        if self.inliner == "onnx":
            from onnx import inliner

            return inliner.inline_local_functions(model, True)
        from onnx_ir.passes.common import InlinePass, RemoveUnusedFunctionsPass

        return apply_ir_passes(model, InlinePass(), RemoveUnusedFunctionsPass())


class ExpandFunctions(Pass):
    """Replaces operators that ONNX defines by other operators (Celu, HardSwish, ...) with their definitions."""

    target_bound = False
    needs_ops = ("Celu", "HardSwish", "GreaterOrEqual", "LessOrEqual", "Gelu", "Mish", "ThresholdedRelu")
    conflicts = RUNTIME_BOUND
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

        if not any(node.op_type in self.ops and is_standard(node) for node in walk_nodes(model.graph)):
            return None
        functions = [("", op) for op in self.ops]
        return inliner.inline_selected_functions(model, functions, False, True)
