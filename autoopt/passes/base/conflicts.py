"""Groups of passes that others list under `conflicts`."""

from __future__ import annotations

LAST = ("ort_graph_optimization", "ort_format")
"""Passes after which no graph pass makes sense: their output is made for one runtime."""


FLOATS = ("float16", "mixed_float16", "bfloat16")


QUANTIZATIONS = (
    "dynamic_quantization",
    "static_quantization",
    "static_16bit",
    "static_w4",
    "fp8_quantization",
    "nncf_quantization",
)
"""Passes that leave integer or float8 graphs, which cannot be converted or quantised again."""
