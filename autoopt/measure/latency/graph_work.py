"""The work that a graph is, whatever the values of its weights: models with the same work are equally fast.

Quantized models that differ in their calibration have the same operators with weights of the same types and sizes.
Dense kernels take the same time for all values but denormal ones. Values count where they may change what is done:
those of shapes and indices, of lengths and masks, of scales that sizes are computed from, and whether a zero point is
zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from onnx import GraphProto, NodeProto, TensorProto

DOMAINS: Final = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc")
"""Domains whose operators are known."""
BY_VALUES: Final = frozenset(
    [
        "NonZero",
        "NonMaxSuppression",
        "Unique",
        "Compress",
        "TopK",
        "Range",
        "RoiAlign",
        "MaxRoiPool",
        "MoE",
        "QMoE",
        "Mod",
    ]
)
"""Operators whose work depends on values that the model computes. So does that of all with a graph of their own."""
SIZES: Final = {
    "AffineGrid": (1,),
    "Attention": (3,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "DFT": (1, 2),
    "DynamicQuantizeLSTM": (4,),
    "Expand": (1,),
    "GRU": (4,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "LSTM": (4,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1),
    "OneHot": (1,),
    "Pad": (1,),
    "QAttention": (5,),
    "RNN": (4,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "STFT": (1, 3),
    "Tile": (1,),
    "Upsample": (1,),
}
"""Operators whose work depends on the values of these inputs: sizes, lengths of sequences, masks of rows. They are
fixed unless computed from weights."""
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
_Use: TypeAlias = tuple[str, int]
BLOCK: Final = 1 << 20
"""Values looked at together, which bounds the memory."""


def has_fixed_work(graph: GraphProto) -> bool:
    """Tell if no operator's work depends on values that the model computes with weights of which not all counts."""
    uses = _uses(graph)
    computed = {tensor.name for tensor in graph.initializer if not _counts(tensor, uses.get(tensor.name, set()))}
    for node in graph.node:
        if _may_depend_on_values(node):
            return False
        if any(name in computed for index, name in enumerate(node.input) if index in SIZES.get(node.op_type, ())):
            return False
        if node.op_type not in ("Shape", "Size") and not computed.isdisjoint(node.input):
            computed.update(node.output)
    return True


def _may_depend_on_values(node: NodeProto) -> bool:
    """Tell if the work of a node may depend on any values: it is unknown, has a graph of its own, or counts them."""
    from onnx import AttributeProto

    if node.domain not in DOMAINS or node.op_type in BY_VALUES:
        return True
    return any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in node.attribute)


def parts_that_count(
    graph: GraphProto, content: Callable[[TensorProto], str], values: Callable[[TensorProto], np.ndarray]
) -> Callable[[TensorProto], str]:
    """Make a function that tells what counts of a weight besides its type and sizes: its `content`, or less.

    `values` reads a weight.
    """
    uses = _uses(graph)

    def part(tensor: TensorProto) -> str:
        if _counts(tensor, uses.get(tensor.name, set())):
            return content(tensor)
        if tensor.data_type in (tensor.FLOAT, tensor.DOUBLE, tensor.BFLOAT16):
            return content(tensor) if _has_tiny(values(tensor)) else ""
        return _part_of_integers(tensor, content)

    return part


def _uses(graph: GraphProto) -> dict[str, set[_Use]]:
    """The inputs of operators that take each value, by the operator's type and the input's index; or "output"."""
    uses: dict[str, set[_Use]] = {output.name: {("output", 0)} for output in graph.output}
    for node in graph.node:
        for index, name in enumerate(node.input):
            uses.setdefault(name, set()).add((node.op_type, index))
    return uses


def _counts(tensor: TensorProto, uses: set[_Use]) -> bool:
    """Tell if all values of a weight count."""
    allowed = WEIGHTED | ELEMENTWISE if math.prod(tensor.dims) > FEW_VALUES else WEIGHTED
    if tensor.data_type == tensor.INT32:  # a bias, unless it counts something
        allowed = QUANTIZED
    if tensor.data_type in (tensor.INT64, tensor.BOOL, tensor.STRING):
        return True
    return any(op not in allowed or index in SIZES.get(op, ()) for op, index in uses)


def _has_tiny(values: np.ndarray) -> bool:
    """Tell if any value is so small that its square is denormal, which makes arithmetic many times slower.

    Such values have the exponents in the lowest quarter of the type's range.
    """
    import numpy as np

    bits = np.ravel(values).view(f"uint{8 * values.itemsize}")
    sign = bits.dtype.type(1 << (8 * values.itemsize - 1))
    for start in range(0, len(bits), BLOCK):
        magnitudes = bits[start : start + BLOCK] & ~sign
        if ((magnitudes > 0) & (magnitudes < sign // 4)).any():
            return True
    return False


def _part_of_integers(tensor: TensorProto, content: Callable[[TensorProto], str]) -> str:
    if len(tensor.dims) > 1 or tensor.data_type not in (tensor.INT8, tensor.UINT8):
        return ""
    # It may be a zero point, and there are shorter ways if that is zero.
    if tensor.data_location == tensor.EXTERNAL:
        return content(tensor)
    return "other" if any(tensor.raw_data) or any(tensor.int32_data) else "zero"
