"""Removal of unused, repeated and pass-through nodes; unique names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from autoopt.passes.base import Pass
from autoopt.passes.onnx_tools.rewriting import apply_ir
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


IR = ("onnx", "onnx-ir")


class NameFix(Pass):
    """Gives every node and value a name of its own; onnxruntime refuses models with double node names."""

    target_bound = False
    tolerance = "lossless"
    touches = ("names",)
    libraries = IR
    aliases = ("unique_name_for_nodes",)

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import NameFixPass

        return apply_ir(model, NameFixPass())


class RemoveUnused(Pass):
    """Removes nodes, weights, functions and operator sets that no output needs."""

    target_bound = False
    tolerance = "lossless"
    libraries = IR
    aliases = ("eliminate_deadend", "eliminate_unused_initializer")

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import RemoveUnusedFunctionsPass, RemoveUnusedNodesPass, RemoveUnusedOpsetsPass

        return apply_ir(model, RemoveUnusedNodesPass(), RemoveUnusedFunctionsPass(), RemoveUnusedOpsetsPass())


class IdentityElimination(Pass):
    """Removes Identity nodes."""

    target_bound = False
    tolerance = "lossless"
    needs_ops = ("Identity",)
    libraries = IR
    aliases = ("identity_elim", "eliminate_identity")

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import IdentityEliminationPass

        return apply_ir(model, IdentityEliminationPass())


class CommonSubexpressionElimination(Pass):
    """Computes once what is computed several times from the same values."""

    target_bound = False
    tolerance = "lossless"
    libraries = IR
    aliases = ("cse",)

    size_limit: Annotated[int, Categorical(0, 10, 100), "largest constant compared by value, in elements"] = 10

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import CommonSubexpressionEliminationPass

        return apply_ir(model, CommonSubexpressionEliminationPass(size_limit=self.size_limit))
