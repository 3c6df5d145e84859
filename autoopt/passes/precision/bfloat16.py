"""Conversion to bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import FLOAT_CONVERSIONS, QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import has_subgraphs, refuse_invalid
from autoopt.passes.onnx_tools.opsets import at_least_opset
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.passes.precision.conversion import has_float32, prepare_for_conversion

if TYPE_CHECKING:
    from onnx import ModelProto


class BFloat16(Pass):
    """Converts float32 weights and computation to bfloat16: the range of float32 with 8 bits of precision.

    For GPUs with bfloat16; the CPU provider has few kernels for it. Refuses models with branches or with operators
    that ONNX does not define for bfloat16.
    """

    tolerance = "lossy"
    requires = ("ir_upgrade", "shape_inference")
    conflicts = (*RUNTIME_BOUND, *FLOAT_CONVERSIONS, *QUANTIZATIONS)
    accelerators = ("CUDAExecutionProvider", "TensorrtExecutionProvider")
    libraries = ("onnx", "onnxsim")
    aliases = ("bf16",)

    keep_io_types: Annotated[bool, "keep the model's inputs and outputs in float32"] = True

    def run(self, model: ModelProto) -> ModelProto | None:
        if not has_float32(model.graph):
            return None
        if has_subgraphs(model):
            raise Refused("the model has branches or loops, which the converter leaves in float32")
        import onnxsim

        prepare_for_conversion(model)
        prepared = at_least_opset(model, 22)  # many operators take bfloat16 from opset 22 on
        del prepared.graph.value_info[:]
        with quiet():
            converted: ModelProto = onnxsim.quantize_bf16(prepared, keep_io_types=self.keep_io_types)
        refuse_invalid(converted, "parts of the model cannot be bfloat16")
        return converted
