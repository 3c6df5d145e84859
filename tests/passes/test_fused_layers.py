"""Fused layers of saved models, split again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops, outputs, saved, step
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.model.session import write_optimized
from autoopt.passes.fusion.rule_passes import SplitFusedLayers
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def chain_of_layers(activation: str) -> onnx.ModelProto:
    return made(
        f"g (float[2, 3, 8, 8] x) => (float[2, 4, 6, 6] y){{ a = Conv (x, w, b)\n y = {activation} }}",
        w=normal(4, 3, 3, 3),
        b=normal(4),
        low=np.float32(-0.2),
        high=np.float32(0.3),
    )


def optimized(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """The model as onnxruntime saves it with fused operators."""
    target = folder / "optimized.onnx"
    write_optimized(io.save(model, folder / "plain"), target, {"graph_optimization_level": "extended"})
    return onnx.load(target)


@pytest.mark.parametrize(
    ("activation", "kind"),
    [
        ("Relu (a)", "Relu"),
        ("LeakyRelu <alpha = 0.3> (a)", "LeakyRelu"),
        ("HardSigmoid <alpha = 0.3, beta = 0.4> (a)", "HardSigmoid"),
        ("Clip (a, low, high)", "Clip"),
    ],
)
def test_layers_with_activations_are_split(activation: str, kind: str, tmp_path: Path) -> None:
    source = chain_of_layers(activation)
    fused = optimized(source, tmp_path)
    assert "FusedConv" in ops(fused)
    feeds = next(synthetic_feeds(source))
    expected = outputs(fused, tmp_path, feeds)[0]
    result = step(tmp_path, fused, "split_fused_layers")
    assert result["outcome"] == "ok", result["message"]
    assert ops(saved(result))[:2] == ["Conv", kind]
    np.testing.assert_allclose(outputs(saved(result), tmp_path, feeds)[0], expected, atol=1e-6)


def test_a_sum_inside_a_convolution_is_an_addition(tmp_path: Path) -> None:
    model = made(
        "g (float[1, 3, 8, 8] x, float[1, 4, 6, 6] z) => (float[1, 4, 6, 6] y)"
        '{ y = com.microsoft.FusedConv <activation = "Relu"> (x, w, b, z) }',
        domains=', "com.microsoft": 1',
        w=normal(4, 3, 3, 3),
        b=normal(4),
    )
    feeds = {"x": normal(1, 3, 8, 8), "z": normal(1, 4, 6, 6)}
    expected = outputs(model, tmp_path, feeds)[0]
    after = SplitFusedLayers()(model)
    assert ops(after) == ["Conv", "Add", "Relu"]
    np.testing.assert_allclose(outputs(after, tmp_path, feeds)[0], expected, atol=1e-5)


def test_dense_layers_are_split(tmp_path: Path) -> None:
    model = made(
        "g (float[2, 8] x) => (float[2, 6] y)"
        '{ y = com.microsoft.FusedGemm <activation = "LeakyRelu", activation_alpha = 0.2, transB = 1> (x, w, b) }',
        domains=', "com.microsoft": 1',
        w=normal(6, 8),
        b=normal(6),
    )
    feeds = {"x": normal(2, 8)}
    expected = outputs(model, tmp_path, feeds)[0]
    after = SplitFusedLayers()(model)
    assert ops(after) == ["Gemm", "LeakyRelu"]
    np.testing.assert_allclose(outputs(after, tmp_path, feeds)[0], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("product", "kinds"),
    [
        ("<alpha = 0.5> (x, w)", ["MatMul", "Mul"]),
        ("<transB = 1> (x, w)", ["MatMul"]),
        ("<transA = 1, alpha = 2.0> (x, w)", ["Transpose", "MatMul", "Mul"]),
    ],
)
def test_factors_and_transpositions_are_operators_of_their_own(product: str, kinds: list[str], tmp_path: Path) -> None:
    model = made(
        f"g (float[2, 4, 4] x) => (float[2, 4, 4] y) {{ y = com.microsoft.FusedMatMul {product} }}",
        domains=', "com.microsoft": 1',
        w=normal(4, 4),
    )
    feeds = {"x": normal(2, 4, 4)}
    expected = outputs(model, tmp_path, feeds)[0]
    after = SplitFusedLayers()(model)
    assert ops(after) == kinds
    np.testing.assert_allclose(outputs(after, tmp_path, feeds)[0], expected, atol=1e-5)


def test_a_value_of_unknown_rank_is_not_transposed() -> None:
    model = made(
        "g (float[2, 4] x, int64[k] shape) => (float y)"
        "{ r = Reshape (x, shape)\n y = com.microsoft.FusedMatMul <transA = 1> (r, w) }",
        domains=', "com.microsoft": 1',
        w=normal(4, 4),
    )
    assert SplitFusedLayers()(model) is model


def test_plain_models_are_unchanged() -> None:
    model = MODELS["small_cnn"]()
    assert SplitFusedLayers()(model) is model
