"""Folding of constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import ir, ir_passes
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.libraries import quiet

if TYPE_CHECKING:
    from onnx import ModelProto


INPUT_LIMIT: Final = 8192
OUTPUT_LIMIT: Final = 512 * 512
"""Default limits of onnxscript's constant folding, in elements."""


def fold_constants(
    model: ModelProto, input_size_limit: int = INPUT_LIMIT, output_size_limit: int = OUTPUT_LIMIT
) -> ModelProto:
    """Fold constants of a protobuf; see `fold_ir_constants`."""
    return to_proto(fold_ir_constants(to_ir(model), input_size_limit, output_size_limit))


def fold_ir_constants(
    model: ir.Model, input_size_limit: int = INPUT_LIMIT, output_size_limit: int = OUTPUT_LIMIT
) -> ir.Model:
    """Fold constants with onnxscript, store the results as weights, and remove the nodes that became unused."""
    from onnxscript import optimizer

    def count_constants() -> int:
        return sum(node.op_type == "Constant" for node in model.graph)

    with quiet():
        before = count_constants()
        optimizer.fold_constants(model, input_size_limit=input_size_limit, output_size_limit=output_size_limit)
        ir_passes.RemoveUnusedNodesPass()(model)
        if count_constants() > before:
            ir_passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        return model
