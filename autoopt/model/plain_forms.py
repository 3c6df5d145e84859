"""The operators of models that come quantized or optimized, and the plain operators that compute the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

QUANTIZERS: Final = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
FLOAT_FORMS: Final[Mapping[str, str]] = {
    "QLinearConv": "Conv",
    "QLinearMatMul": "MatMul",
    "ConvInteger": "Conv",
    "MatMulInteger": "MatMul",
    "com.microsoft::MatMulIntegerToFloat": "MatMul",
    "com.microsoft::DynamicQuantizeMatMul": "MatMul",
    "com.microsoft::DynamicQuantizeLSTM": "LSTM",
    "com.microsoft::MatMulNBits": "MatMul",
    "com.microsoft::GatherBlockQuantized": "Gather",
    "com.microsoft::QLinearConv": "Conv",
    "com.microsoft::QAttention": "com.microsoft::Attention",
    "com.microsoft::QGemm": "Gemm",
    "com.microsoft::QLinearAdd": "Add",
    "com.microsoft::QLinearMul": "Mul",
    "com.microsoft::QLinearConcat": "Concat",
    "com.microsoft::QLinearWhere": "Where",
    "com.microsoft::QLinearSigmoid": "Sigmoid",
    "com.microsoft::QLinearSoftmax": "Softmax",
    "com.microsoft::QLinearLeakyRelu": "LeakyRelu",
    "com.microsoft::QLinearAveragePool": "AveragePool",
    "com.microsoft::QLinearGlobalAveragePool": "GlobalAveragePool",
}
"""Integer operator -> float operator, as an `Inspection` names them."""
FUSED_LAYERS: Final[Mapping[str, str]] = {
    "com.microsoft::FusedConv": "Conv",
    "com.microsoft::FusedGemm": "Gemm",
    "com.microsoft::FusedMatMul": "MatMul",
}
"""Layer as onnxruntime saves it in optimized models -> the operator of ONNX in it."""
PLAIN_FORMS: Final[Mapping[str, str]] = {**FLOAT_FORMS, **FUSED_LAYERS}
QUANTIZED_OPS: Final = frozenset((*QUANTIZERS, *FLOAT_FORMS))


def with_plain_forms(op_counts: Mapping[str, int]) -> dict[str, int]:
    """Nodes by operator, with the plain forms of integer operators and fused layers beside them."""
    counts = Counter(op_counts)
    for op in PLAIN_FORMS.keys() & op_counts.keys():
        counts[PLAIN_FORMS[op]] += op_counts[op]
    return dict(sorted(counts.items()))
