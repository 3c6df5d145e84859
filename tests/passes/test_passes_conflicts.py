"""Conflicts between passes."""

from __future__ import annotations

from autoopt.registry import registry


def test_conflicts_between_quantizations_are_symmetric() -> None:
    for a in ("dynamic_quantization", "static_quantization", "float16", "mixed_float16", "nncf_quantization"):
        for b in ("dynamic_quantization", "static_quantization", "fp8_quantization"):
            assert b in registry().info(a).conflicts
    assert "float16" in registry().info("static_w4").conflicts
    assert "float16" not in registry().info("weight_only_quantization").conflicts


def test_nothing_may_raise_the_optimization_level_after_float8() -> None:
    for name in ("session_tuning", "ort_graph_optimization"):
        assert "fp8_quantization" in registry().info(name).conflicts
    assert "session_tuning" in registry().info("fp8_quantization").conflicts
