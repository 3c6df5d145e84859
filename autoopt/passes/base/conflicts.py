"""Groups of passes that others list under `conflicts`."""

from __future__ import annotations

from typing import Final

RUNTIME_BOUND: Final = ("ort_graph_optimization", "ort_format")
"""Passes whose output only one runtime can read, so that no graph pass can follow."""
FLOAT_CONVERSIONS: Final = ("float16", "mixed_float16", "bfloat16")
"""Passes that leave graphs in short floats."""
QUANTIZATIONS: Final = ("dynamic_quantization", "static_quantization", "nncf_quantization")
"""Passes that leave integer or float8 graphs, which cannot be converted or quantized again."""
WEIGHT_QUANTIZATIONS: Final = (
    "weight_only_quantization",
    "calibrated_weight_quantization",
    "bnb4_quantization",
    "nncf_weight_compression",
)
"""Passes that leave MatMul weights in integers or 4-bit floats."""
FUSIONS: Final = (
    *RUNTIME_BOUND,
    "dynamic_quantization",
    "static_quantization",
    "weight_only_quantization",
    "calibrated_weight_quantization",
)
"""Passes that must not run before a fusion, because they leave no float patterns to fuse."""
