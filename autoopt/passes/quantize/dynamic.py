"""Dynamic quantization: 8-bit weights, and activation ranges determined at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import FLOAT_CONVERSIONS, QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import constant_names, drop_weight_types, is_large, op_counts
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import at_least_opset
from autoopt.passes.quantize.cpu_support import offer_for_cpu
from autoopt.passes.quantize.ort_quantizer import accept_quantized
from autoopt.registry import ParameterInfo
from autoopt.space import IGNORED, Boolean, Categorical, Conditional
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto

DYNAMIC_OPS: Final = ("Attention", "Conv", "EmbedLayerNormalization", "Gather", "Gemm", "LSTM", "MatMul")
"""Operators with weights that have a dynamic integer form."""
FAST_OPS: Final = ["MatMul", "Attention", "LSTM"]
"""Those that are faster in integers on CPUs."""


class DynamicQuantization(Pass):
    """Quantizes weights to 8-bit integers, and activations at run time. Needs no data.

    Good for MatMul, LSTM and Attention. Integer convolutions are mostly slower than float ones on CPUs, so Conv is left
    out by default; one of the searched values includes it. Local functions are inlined first. Trees, SVMs, TF-IDF and
    weights inside `If` bodies stay unchanged.
    """

    version = 2
    tolerance = "lossy"
    conflicts = (*RUNTIME_BOUND, *QUANTIZATIONS, *FLOAT_CONVERSIONS)
    accelerators = ("CPUExecutionProvider",)
    needs_ops = ("Conv", "Gather", "Gemm", "LSTM", "MatMul", "com.microsoft::Attention")
    libraries = ("onnx", "onnxruntime")
    aliases = ("dynamic_int8", "OnnxDynamicQuantization", "IncDynamicQuantization")

    weight_type: Annotated[Literal["QInt8", "QUInt8"], Categorical("QInt8", "QUInt8"), "type of the weights"] = "QInt8"
    per_channel: Annotated[bool, Boolean(), "one scale per output channel instead of one per tensor"] = False
    reduce_range: Annotated[
        bool,
        Conditional("weight_type", {"QInt8": Boolean()}, default=IGNORED),
        "7-bit weights, which prevent overflow on CPUs without VNNI; searched only there",
    ] = False
    op_types: Annotated[
        list[str],
        Categorical([], FAST_OPS),
        "operator types to quantize (MatMul includes Gemm); empty: all that have an integer form",
    ] = FAST_OPS
    nodes_to_exclude: Annotated[list[str], "nodes to leave as they are, by name"] = []
    matmul_const_b_only: Annotated[bool, "only MatMul with a constant second input"] = True

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        return offer_for_cpu(parameter, accelerator)

    def run(self, model: ModelProto) -> ModelProto | None:
        import onnx.inliner
        from onnxruntime.quantization import QuantType, quantize_dynamic

        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        if not self._has_quantizable_weights(model):
            return None
        before = op_counts(model)
        opset = 11
        if self.per_channel:
            opset = 13  # DequantizeLinear has an axis from opset 13 on
        prepared = at_least_opset(model, opset)
        # onnxruntime splits a Gemm into a MatMul with a name of its own and an Add.
        gemms = {node.name for node in prepared.graph.node if node.op_type == "Gemm"}
        excluded = [*self.nodes_to_exclude, *(f"{name}_MatMul" for name in self.nodes_to_exclude if name in gemms)]
        drop_weight_types(prepared)
        target = self.context.work / "dynamic.onnx"
        with quiet():
            quantize_dynamic(
                prepared,
                target,
                op_types_to_quantize=sorted(self.op_types) or None,
                per_channel=self.per_channel,
                reduce_range=self.reduce_range,
                weight_type=QuantType[self.weight_type],
                nodes_to_exclude=excluded,
                use_external_data_format=is_large(prepared),
                # The type of values that onnx's inference does not reach, such as outputs of fused operators.
                extra_options={
                    "MatMulConstBOnly": self.matmul_const_b_only,
                    "DefaultTensorType": onnx.TensorProto.FLOAT,
                },
            )
        return accept_quantized(before, onnx.load(target))

    def _has_quantizable_weights(self, model: ModelProto) -> bool:
        op_types = set(self.op_types or DYNAMIC_OPS)
        op_types.discard("Transpose")  # has no weights; onnxruntime quantizes it only between integer operators
        if "MatMul" in op_types:
            op_types.add("Gemm")
        constants = constant_names(model)
        return any(node.op_type in op_types and constants.intersection(node.input) for node in model.graph.node)
