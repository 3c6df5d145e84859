"""Dynamic quantization: 8-bit weights, and activation ranges determined at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.model.lazy_imports import ir, onnx
from autoopt.model.tensors import tensors
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.contract import FLOAT_CONVERSIONS, QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.gemm import split_gemms
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    constant_names,
    drop_weight_types,
    has_subgraphs,
    is_large,
    is_standard,
    name_nodes,
    op_counts,
    replace_items,
    sort_nodes,
    walk_nodes,
)
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import at_least_opset, import_ort_domain, inline_functions
from autoopt.passes.onnx_tools.weights import copy_weights_into_bodies, lift_constants, weighted_nodes
from autoopt.passes.quantize.cpu_support import offer_for_cpu
from autoopt.passes.quantize.ort_quantizer import accept_quantized, refuse_weights, separate_uses_of_weights
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

    version = 9
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
        model = inline_functions(to_proto(source))
        if not self._has_quantizable_weights(model):
            return None
        refuse_weights(model)
        kinds = {tensor.data_type for tensor in tensors(model)}
        if onnx.TensorProto.FLOAT not in kinds:
            if kinds.isdisjoint((onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)):
                return None
            raise Refused("the model computes in 16-bit floats; float32 converts it")
        before = op_counts(model)
        opset = 11
        if self.per_channel:
            opset = 13  # DequantizeLinear has an axis from opset 13 on
        prepared = lift_constants(at_least_opset(model, opset))
        with_bodies = self.bodies and has_subgraphs(prepared)
        if with_bodies:
            products = to_ir(prepared)
            copy_weights_into_bodies(products, ["LSTM"])
            prepared = to_proto(products)
        separate_uses_of_weights(prepared, self.per_channel, as_values=False)
        _drop_equal_sizes(prepared)
        products = to_ir(prepared)
        split_gemms(products)  # onnxruntime would transpose a shared weight once per Gemm
        prepared = to_proto(products)
        try:
            quantized = self._quantize(prepared, with_bodies)
        except Exception as error:  # onnxruntime raises AttributeError and others on bodies that it cannot quantize
            if not with_bodies:
                raise
            return Retry(f"the bodies of If, Loop and Scan stay in float: {error!r}", {"bodies": False})
        import_ort_domain(quantized)
        quantized = sort_nodes(quantized)  # the quantizer adds nodes that bodies read behind those
        return accept_quantized(before, quantized)

    def _quantize(self, model: ModelProto, with_bodies: bool) -> ModelProto:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        from autoopt.passes.patches.ort_quantizers import lean_quantizers

        # onnxruntime splits what is left of Gemm into a MatMul with a name of its own and an Add.
        gemms = {node.name for node in model.graph.node if node.op_type == "Gemm"}
        excluded = [*self.nodes_to_exclude, *(f"{name}_MatMul" for name in self.nodes_to_exclude if name in gemms)]
        attention = [node for node in walk_nodes(model.graph) if node.op_type == "Attention" and is_standard(node)]
        if attention:  # which onnxruntime takes for its own
            name_nodes(model)
            excluded += [node.name for node in attention]
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

    def _has_quantizable_weights(self, model: ModelProto) -> bool:
        op_types = set(self.op_types or DYNAMIC_OPS)
        op_types.discard("Transpose")  # has no weights; onnxruntime quantizes it only between integer operators
        if "MatMul" in op_types:
            op_types.add("Gemm")
        if self.bodies:
            return any(True for _ in weighted_nodes(model, op_types))
        constants = constant_names(model.graph)
        return any(node.op_type in op_types and constants.intersection(node.input) for node in model.graph.node)


def _drop_equal_sizes(model: ModelProto) -> None:
    """Drop the sizes of query, key and value where they are equal, in place: onnxruntime leaves Attention with them."""
    for node in walk_nodes(model.graph):
        if node.op_type == "Attention" and len(set(attribute_values(node).get(SIZES, (0, 1)))) == 1:
            replace_items(node.attribute, [item for item in node.attribute if item.name != SIZES])
