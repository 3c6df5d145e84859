"""Conflicts between passes."""

from __future__ import annotations

from autoopt.registry import registry


def test_conflicts_between_quantizations_are_symmetric() -> None:
    for a in ("dynamic_quantization", "static_quantization", "float16", "mixed_float16", "nncf_quantization"):
        for b in ("dynamic_quantization", "static_quantization"):
            assert b in registry().info(a).conflicts
    assert "float16" in registry().info("static_w4").conflicts
    assert "float16" not in registry().info("weight_only_quantization").conflicts
