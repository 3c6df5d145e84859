"""The result of a quantizer: recognized, and cleaned of the quantizer's notes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from autoopt.passes.onnx_tools.graphs import drop_metadata, has_more_of

if TYPE_CHECKING:
    from onnx import ModelProto

INTEGER_OPS: Final = (
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
"""Operators that occur in quantized graphs but not in float ones."""
INFER_MARK: Final = "onnx.infer"
"""Metadata key that onnxruntime's quantizer leaves behind."""


def accept_quantized(before: Counter[str], model: ModelProto) -> ModelProto | None:
    """Return `model` without the quantizer's note, or None if it has no more integer operators than `before`."""
    if not has_more_of(INTEGER_OPS, before, model):
        return None
    return drop_metadata(model, INFER_MARK)
