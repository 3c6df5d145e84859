"""Function calls and function operators replaced by their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.onnx_tools.graphs import nodes
from autoopt.passes.onnx_tools.rewriting import apply_ir
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


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
