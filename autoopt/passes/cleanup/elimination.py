"""Removal of unused, repeated and pass-through nodes; unique names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from autoopt.passes.base import Pass
from autoopt.passes.onnx_tools.rewriting import apply_ir_passes
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto

IR_LIBRARIES: Final = ("onnx", "onnx-ir")


class NameFix(Pass):
    """Gives every node and value a unique name; onnxruntime refuses models with duplicate node names."""

    target_bound = False
    tolerance = "lossless"
    touches = ("names",)
    libraries = IR_LIBRARIES
    aliases = ("unique_name_for_nodes",)

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import NameFixPass

        return apply_ir_passes(model, NameFixPass())


class RemoveUnused(Pass):
    """Removes nodes, weights, functions and operator sets that no output needs."""

    target_bound = False
    tolerance = "lossless"
    libraries = IR_LIBRARIES
    aliases = ("eliminate_deadend", "eliminate_unused_initializer")

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import RemoveUnusedFunctionsPass, RemoveUnusedNodesPass, RemoveUnusedOpsetsPass

        return apply_ir_passes(model, RemoveUnusedNodesPass(), RemoveUnusedFunctionsPass(), RemoveUnusedOpsetsPass())


class IdentityElimination(Pass):
    """Removes Identity nodes."""

    target_bound = False
    tolerance = "lossless"
    needs_ops = ("Identity",)
    libraries = IR_LIBRARIES
    aliases = ("identity_elim", "eliminate_identity")

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import IdentityEliminationPass

        return apply_ir_passes(model, IdentityEliminationPass())


class CommonSubexpressionElimination(Pass):
    """Computes repeated subexpressions once."""

    target_bound = False
    tolerance = "lossless"
    libraries = IR_LIBRARIES
    aliases = ("cse",)

    size_limit: Annotated[int, Categorical(0, 10, 100), "largest constant compared by value, in elements"] = 10

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import CommonSubexpressionEliminationPass

        return apply_ir_passes(model, CommonSubexpressionEliminationPass(size_limit=self.size_limit))
