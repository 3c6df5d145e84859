"""Dynamic quantization: 8-bit weights, and activation ranges determined at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.model.lazy_imports import ir, onnx
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.contract import FLOAT_CONVERSIONS, QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.base.conversion import to_proto
from autoopt.passes.onnx_tools.gemm import split_gemms
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, drop_weight_types, is_large, sort_nodes
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import import_ort_domain, raised, with_inlined_functions
from autoopt.passes.onnx_tools.values import name_nodes, stored_tensors
from autoopt.passes.onnx_tools.weights import copy_weights_into_bodies, has_bodies, lift_constants, weighted_nodes
from autoopt.passes.quantize.cpu_support import offer_for_cpu
from autoopt.passes.quantize.ort_quantizer import (
    accept_quantized,
    count_integer_ops,
    empty_products,
    refuse_weights,
    separate_uses_of_weights,
)
from autoopt.registry import ParameterInfo
from autoopt.space import IGNORED, Boolean, Categorical, Conditional
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto

DYNAMIC_OPS: Final = ("Attention", "Conv", "EmbedLayerNormalization", "Gather", "Gemm", "LSTM", "MatMul")
"""Operators with weights that have a dynamic integer form."""
FAST_OPS: Final = ["MatMul", "Attention", "LSTM"]
"""Those that are faster in integers on CPUs."""
SIZES: Final = "qkv_hidden_sizes"


class DynamicQuantization(Pass):
    """Quantizes weights to 8-bit integers, and activations at run time. Needs no data.

    Good for MatMul, LSTM and Attention. Integer convolutions are mostly slower than float ones on CPUs, so Conv is left
    out by default; one of the searched values includes it. Local functions are inlined first; the bodies of If, Loop
    and Scan are quantized too. Trees, SVMs and TF-IDF stay unchanged.
    """

    version = 10
    tolerance = "lossy"
    conflicts = (*RUNTIME_BOUND, *QUANTIZATIONS, *FLOAT_CONVERSIONS)
    accelerators = ("CPUExecutionProvider",)
    needs_ops = ("Conv", "Gather", "Gemm", "LSTM", "MatMul", "com.microsoft::Attention")
    libraries = ("onnx", "onnxruntime")
    aliases = ("dynamic_int8",)

    weight_type: Annotated[Literal["QInt8", "QUInt8"], Categorical("QInt8", "QUInt8"), "type of the weights"] = "QInt8"
    per_channel: Annotated[bool, Boolean(), "one scale per output channel instead of one per tensor"] = False
    reduce_range: Annotated[
        bool,
        Conditional("weight_type", {"QInt8": Boolean()}, default=IGNORED),
        "7-bit weights, which prevent overflow on x86 CPUs without VNNI; searched, and the default, only there",
    ] = False
    op_types: Annotated[
        list[str],
        Categorical([], FAST_OPS),
        "operator types to quantize (MatMul includes Gemm); empty: all that have an integer form",
    ] = FAST_OPS
    nodes_to_exclude: Annotated[list[str], "nodes to leave as they are, by name"] = []
    matmul_const_b_only: Annotated[bool, "only MatMul with a constant second input"] = True
    bodies: Annotated[bool, "also quantize the bodies of If, Loop and Scan"] = True

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        return offer_for_cpu(parameter, accelerator)

    def run(self, source: ir.Model) -> ModelProto | Retry | None:
        model = with_inlined_functions(source)
        if not self._has_quantizable_weights(model):
            return None
        refuse_weights(model)
        kinds = {tensor.dtype for tensor in stored_tensors(model)}
        if ir.DataType.FLOAT not in kinds:
            if kinds.isdisjoint((ir.DataType.FLOAT16, ir.DataType.BFLOAT16)):
                return None
            raise Refused("the model computes in 16-bit floats; float32 converts it")
        # DequantizeLinear has an axis from opset 13 on
        prepared = raised(model, 13 if self.per_channel else 11)
        lift_constants(prepared)
        with_bodies = self.bodies and has_bodies(prepared)
        if with_bodies:
            copy_weights_into_bodies(prepared, ["LSTM"])
        separate_uses_of_weights(prepared, self.per_channel, as_values=False)
        excluded = self._excluded(prepared)
        split_gemms(prepared)  # onnxruntime would transpose a shared weight once per Gemm
        before = count_integer_ops(prepared.graph.all_nodes())
        try:
            quantized = self._quantize(to_proto(prepared), excluded, with_bodies)
        except Exception as error:  # onnxruntime raises AttributeError and others on bodies that it cannot quantize
            if not with_bodies:
                raise
            return Retry(f"the bodies of If, Loop and Scan stay in float: {error!r}", {"bodies": False})
        import_ort_domain(quantized)
        return accept_quantized(before, sort_nodes(quantized))  # it adds nodes that bodies read behind those

    def _excluded(self, model: ir.Model) -> list[str]:
        """The names of the nodes to leave as they are; sizes that make onnxruntime leave an Attention go, in place."""
        excluded = list(self.nodes_to_exclude)
        # onnxruntime splits what is left of Gemm into a MatMul with a name of its own and an Add.
        excluded += [f"{node.name}_MatMul" for node in model.graph if node.op_type == "Gemm" and node.name in excluded]
        name_nodes(model)
        excluded += empty_products(model)
        for node in model.graph.all_nodes():
            if node.op_type == "Attention" and node.domain in DEFAULT_DOMAINS:  # onnxruntime takes it for its own
                excluded.append(str(node.name))
            elif node.op_type == "Attention" and len(set(node.attributes.get_ints(SIZES, (0, 1)))) == 1:
                del node.attributes[SIZES]
        return excluded

    def _quantize(self, model: ModelProto, excluded: list[str], with_bodies: bool) -> ModelProto:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        from autoopt.passes.patches.ort_quantizers import lean_quantizers

        drop_weight_types(model)
        target = self.context.work / "dynamic.onnx"
        with quiet(), lean_quantizers(target) as quantized:
            quantize_dynamic(
                model,
                target,
                op_types_to_quantize=sorted(self.op_types) or None,
                per_channel=self.per_channel,
                reduce_range=self.reduce_range,
                weight_type=QuantType[self.weight_type],
                nodes_to_exclude=excluded,
                use_external_data_format=is_large(model),
                # The type of values that onnx's inference does not reach, such as outputs of fused operators.
                extra_options={
                    "MatMulConstBOnly": self.matmul_const_b_only,
                    "DefaultTensorType": onnx.TensorProto.FLOAT,
                    "EnableSubgraph": with_bodies,
                },
            )
        return quantized.load()

    def _has_quantizable_weights(self, model: ir.Model) -> bool:
        op_types = set(self.op_types or DYNAMIC_OPS)
        op_types.discard("Transpose")  # has no weights; onnxruntime quantizes it only between integer operators
        if "MatMul" in op_types:
            op_types.add("Gemm")
        return any(self.bodies or node.graph is model.graph for node in weighted_nodes(model, op_types))
