"""Conversion of a whole model to float16 or bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import FLOAT_CONVERSIONS, QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import has_subgraphs, op_counts
from autoopt.passes.onnx_tools.large_models import refuse_invalid
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import at_least_opset, inline_functions
from autoopt.passes.precision.conversion import Converter, has_float32, prepare_for_conversion, to_float16
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


class Float16(Pass):
    """Converts float32 weights and computation to float16.

    Faster on GPUs; the CPU provider mostly computes float16 through casts. Operators in `op_block_list` stay in
    float32.
    """

    version = 3
    tolerance = "lossy"
    requires = ("ir_upgrade", "shape_inference")
    conflicts = (*RUNTIME_BOUND, *FLOAT_CONVERSIONS, *QUANTIZATIONS)
    libraries = ("onnx", "onnxconverter-common", "onnxruntime")
    aliases = ("fp16",)

    impl: Annotated[Converter, Categorical("occ", "ort"), "converter: onnxconverter-common or onnxruntime's"] = "occ"
    keep_io_types: Annotated[bool, "keep the model's inputs and outputs in float32"] = True
    op_block_list: Annotated[
        list[str],
        Categorical([], ["LayerNormalization", "Softmax"], ["ReduceMean", "Pow"]),
        "operator types to keep in float32, besides the converter's own list",
    ] = []
    node_block_list: Annotated[list[str], "nodes to keep in float32, by name"] = []
    min_positive_val: Annotated[float | None, "smaller values become this one; null: the converter's default"] = None
    max_finite_val: Annotated[float | None, "larger values become this one; null: the converter's default"] = None
    force_fp16_initializers: Annotated[bool, "also convert weights of operators kept in float32; only `ort`"] = False

    def run(self, model: ModelProto) -> ModelProto | None:
        model = inline_functions(model)
        if not has_float32(model):
            return None
        if op_counts(model)["DequantizeLinear"]:
            raise Refused("the model is quantized; dequantize turns it into a float model")
        options: dict[str, object] = {"keep_io_types": self.keep_io_types}
        if self.min_positive_val is not None:
            options["min_positive_val"] = self.min_positive_val
        if self.max_finite_val is not None:
            options["max_finite_val"] = self.max_finite_val
        if self.impl == "ort":
            options["force_fp16_initializers"] = self.force_fp16_initializers
        converted = to_float16(model, self.impl, list(self.op_block_list), list(self.node_block_list), **options)
        if converted is not None and has_subgraphs(converted):
            refuse_invalid(converted, "the converter cannot convert this model's branches")
        return converted


class BFloat16(Pass):
    """Converts float32 weights and computation to bfloat16: the range of float32 with 8 bits of precision.

    For GPUs with bfloat16; the CPU provider has few kernels for it. Refuses models with branches or with operators
    that ONNX does not define for bfloat16.
    """

    tolerance = "lossy"
    requires = ("ir_upgrade", "shape_inference")
    conflicts = (*RUNTIME_BOUND, *FLOAT_CONVERSIONS, *QUANTIZATIONS)
    accelerators = ("CUDAExecutionProvider", "TensorrtExecutionProvider")
    refuses_ops = ("If", "Loop", "Scan", "SequenceMap")
    libraries = ("onnx", "onnxsim")
    aliases = ("bf16",)

    keep_io_types: Annotated[bool, "keep the model's inputs and outputs in float32"] = True

    def run(self, model: ModelProto) -> ModelProto | None:
        model = inline_functions(model)
        if not has_float32(model):
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
