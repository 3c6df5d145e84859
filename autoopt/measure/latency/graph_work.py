"""The work that a graph is, whatever the values of its weights: models with the same work are equally fast.

Quantized models that differ in their calibration have the same operators with weights of the same types and sizes.
Dense kernels take the same time for all values. Values count where they may change what is done: those of shapes and
indices, of scales that sizes are computed from, and whether a zero point is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onnx import GraphProto, TensorProto

DOMAINS: Final = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc")
"""Domains whose operators are known."""
BY_VALUES: Final = frozenset({"NonZero", "NonMaxSuppression", "Unique", "Compress", "TopK", "Range"})
"""Operators whose work depends on values that the model computes. So does that of all with a graph of their own."""
QUANTIZED: Final = frozenset(
    [
        "QLinearConv",
        "QLinearMatMul",
        "QGemm",
        "QLinearAdd",
        "QLinearMul",
        "QLinearConcat",
        "QLinearSigmoid",
        "QLinearLeakyRelu",
        "QLinearSoftmax",
        "QLinearGlobalAveragePool",
        "QLinearAveragePool",
        "QLinearReduceMean",
        "QuantizeLinear",
        "DequantizeLinear",
        "ConvInteger",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
        "DynamicQuantizeLSTM",
        "QAttention",
        "MatMulNBits",
    ]
)
"""Quantized operators, whose scales, zero points and weights never are sizes."""
WEIGHTED: Final = QUANTIZED | frozenset(
    [
        "Conv",
        "FusedConv",
        "ConvTranspose",
        "MatMul",
        "FusedMatMul",
        "Gemm",
        "FusedGemm",
        "LSTM",
        "GRU",
        "RNN",
        "Attention",
        "MultiHeadAttention",
        "LayerNormalization",
        "SkipLayerNormalization",
        "SimplifiedLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "EmbedLayerNormalization",
        "BatchNormalization",
        "InstanceNormalization",
        "BiasGelu",
        "FastGelu",
    ]
)
"""Operators that do the same work for all values of their weights."""
ELEMENTWISE: Final = frozenset(("Add", "Sub", "Mul", "Div", "PRelu", "Gather"))
"""Operators for which that holds for weights of more than `FEW_VALUES`; fewer may be sizes."""
FEW_VALUES: Final = 16


def has_fixed_work(graph: GraphProto) -> bool:
    """Tell if no operator's work depends on values that the model computes."""
    from onnx import AttributeProto

    for node in graph.node:
        if node.domain not in DOMAINS or node.op_type in BY_VALUES:
            return False
        if any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in node.attribute):
            return False
    return True


def parts_that_count(graph: GraphProto, content: Callable[[TensorProto], str]) -> Callable[[TensorProto], str]:
    """Make a function that tells what counts of a weight besides its type and sizes: its `content`, or less."""
    uses: dict[str, set[str]] = {output.name: {"output"} for output in graph.output}
    for node in graph.node:
        for name in node.input:
            uses.setdefault(name, set()).add(node.op_type)

    def part(tensor: TensorProto) -> str:
        return _part_that_counts(tensor, uses.get(tensor.name, set()), content)

    return part


def _part_that_counts(tensor: TensorProto, uses: set[str], content: Callable[[TensorProto], str]) -> str:
    allowed = WEIGHTED | ELEMENTWISE if math.prod(tensor.dims) > FEW_VALUES else WEIGHTED
    if tensor.data_type == tensor.INT32:  # a bias, unless it counts something
        allowed = QUANTIZED
    if tensor.data_type in (tensor.INT64, tensor.BOOL, tensor.STRING) or not uses <= allowed:
        return content(tensor)
    if len(tensor.dims) > 1 or tensor.data_type not in (tensor.INT8, tensor.UINT8):
        return ""
    # It may be a zero point, and there are shorter ways if that is zero.
    if tensor.data_location == tensor.EXTERNAL:
        return content(tensor)
    return "other" if any(tensor.raw_data) or any(tensor.int32_data) else "zero"
