"""Constants of onnxruntime's quantizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


INTEGER_OPS = (
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "ConvInteger",
    "QAttention",
    "DynamicQuantizeLSTM",
    "QEmbedLayerNormalization",
    "QuantizeLinear",
    "DequantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "QGemm",
)
"""Operators of which a quantised graph has some and a float graph none."""


INFER_MARK = "onnx.infer"
"""Metadata that ORT's quantiser leaves behind."""


def quant_type(name: str) -> Any:
    """onnxruntime's QuantType of that name."""
    from onnxruntime.quantization import QuantType

    return QuantType[name]
