"""Dynamic quantisation: 8-bit weights now, activation ranges at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import FLOATS, LAST, QUANTIZATIONS
from autoopt.passes.onnx_tools.graphs import constants, drop_metadata, forget_weight_types, gained, is_large, op_counts
from autoopt.passes.onnx_tools.opsets import at_least_opset
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.passes.quantize.cpu_support import offer_by_isa
from autoopt.passes.quantize.ort_quantizer import INFER_MARK, INTEGER_OPS, quant_type
from autoopt.registry import ParameterInfo
from autoopt.space import IGNORED, Boolean, Categorical, Conditional
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto


DYNAMIC_OPS = ("Attention", "Conv", "EmbedLayerNormalization", "Gather", "Gemm", "LSTM", "MatMul", "Transpose")


class DynamicQuantization(Pass):
    """8-bit integer weights, activations quantised at run time; needs no data.

    Good for MatMul, LSTM and Attention; integer convolutions are mostly slower than float ones on CPUs, so leaving
    Conv out is one of the searched values. Trees, SVMs, TF-IDF and weights inside `If` bodies stay `unchanged`.
    """

    family: ClassVar[str] = "quantize"
    tolerance = "lossy"
    conflicts = (*LAST, *QUANTIZATIONS, *FLOATS)
    accelerators = ("CPUExecutionProvider",)
    needs_ops = ("Conv", "Gather", "Gemm", "LSTM", "MatMul", "com.microsoft::Attention")
    libraries = ("onnx", "onnxruntime")
    aliases = ("dynamic_int8", "OnnxDynamicQuantization", "IncDynamicQuantization")

    weight_type: Annotated[Literal["QInt8", "QUInt8"], Categorical("QInt8", "QUInt8"), "type of the weights"] = "QInt8"
    per_channel: Annotated[bool, Boolean(), "a scale for each output channel instead of one for the tensor"] = False
    reduce_range: Annotated[
        bool,
        Conditional("weight_type", {"QInt8": Boolean()}, default=IGNORED),
        "7-bit weights, against overflow on CPUs without VNNI, where it is searched",
    ] = False
    op_types: Annotated[
        list[str],
        Categorical([], ["MatMul", "Attention", "LSTM"]),
        "operator types to quantise (MatMul means Gemm too); empty: all that have an integer form",
    ] = []
    nodes_to_exclude: Annotated[list[str], "nodes to leave as they are, by name"] = []
    matmul_const_b_only: Annotated[bool, "only MatMul with a constant second input"] = True

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        return offer_by_isa(parameter, accelerator)

    def run(self, model: ModelProto) -> ModelProto | None:
        import onnx
        from onnxruntime.quantization import quantize_dynamic

        if not self._has_work(model):
            return None
        before = op_counts(model)
        prepared = at_least_opset(model, 13 if self.per_channel else 11)
        forget_weight_types(prepared)
        target = self.context.work / "dynamic.onnx"
        with quiet():
            quantize_dynamic(
                prepared,
                target,
                op_types_to_quantize=sorted(self.op_types) or None,
                per_channel=self.per_channel,
                reduce_range=self.reduce_range,
                weight_type=quant_type(self.weight_type),
                nodes_to_exclude=self._excluded(prepared),
                use_external_data_format=is_large(prepared),
                extra_options={"MatMulConstBOnly": self.matmul_const_b_only},
            )
        made = onnx.load(target)
        return drop_metadata(made, INFER_MARK) if gained(before, made, INTEGER_OPS) else None

    def _excluded(self, model: ModelProto) -> list[str]:
        """The nodes to leave, also by the names that onnxruntime gives them: it makes a Gemm a MatMul and an Add."""
        gemms = {node.name for node in model.graph.node if node.op_type == "Gemm"}
        return [*self.nodes_to_exclude, *(f"{name}_MatMul" for name in self.nodes_to_exclude if name in gemms)]

    def _has_work(self, model: ModelProto) -> bool:
        """Whether the main graph has an operator of the kind with a constant operand."""
        wanted = set(self.op_types or DYNAMIC_OPS) - {"Transpose"}
        if "MatMul" in wanted:
            wanted.add("Gemm")
        fixed = constants(model)
        return any(node.op_type in wanted and any(i in fixed for i in node.input) for node in model.graph.node)
