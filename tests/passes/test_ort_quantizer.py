"""Defects of onnxruntime's quantizer are avoided, and hard sigmoids in integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import cosine, ops, outputs, saved, step, steps
from micro_models import made, normal
from onnx import TensorProto, helper

from autoopt.model import io
from autoopt.model.session import write_optimized
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


@pytest.mark.parametrize("name", ["dynamic_quantization", "weight_only_quantization", "bnb4_quantization"])
def test_a_product_over_no_elements_stays_in_float(tmp_path: Path, name: str) -> None:
    """The runtime returns whatever is in memory for its integer form, or refuses it."""
    model = made(
        "g (float[2, 0] x, float[2, 32] z) => (float[2, 4] y)"
        "{ [empty] a = MatMul (x, v)\n [full] b = MatMul (z, w)\n y = Add (a, b) }",
        v=np.zeros((0, 4), np.float32),
        w=normal(32, 4),
    )
    quantized = saved(step(tmp_path, model, name, **({} if "dynamic" in name else {"block_size": 16})))
    assert ops(quantized).count("MatMul") == 1
    feeds = {"x": np.zeros((2, 0), np.float32), "z": normal(2, 32, seed=1)}
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(quantized, tmp_path, feeds)[0]) > 0.98


@pytest.mark.parametrize("quant_format", ["QDQ", "QOperator"])
def test_a_model_with_operators_quantized_by_the_same_tool_is_quantized_further(
    tmp_path: Path, quant_format: str
) -> None:
    """Their scales and nodes have the names that the quantizer gives to its own."""
    model = made(
        "g (float[1, 2, 6, 6] x) => (float[1, 2, 6, 6] y)"
        "{ h = Conv <pads = [1, 1, 1, 1]> (x, w)\n h_quantized, h_scale, h_zero_point = DynamicQuantizeLinear (h)\n"
        " i = ConvInteger <pads = [1, 1, 1, 1]> (h_quantized, w_quantized, h_zero_point)\n"
        " s = Mul (h_scale, w_scale)\n f = Cast <to = 1> (i)\n c = Mul (f, s)\n y = Add (c, h) }",
        w=normal(2, 2, 3, 3),
        w_quantized=(20 * normal(2, 2, 3, 3, seed=1)).astype(np.int8),
        w_scale=np.float32(0.05),
    )
    model.graph.node[1].name = "h_QuantizeLinear"
    result = step(tmp_path, model, "static_quantization", True, quant_format=quant_format)
    assert result["outcome"] == "ok", result["message"]
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > 0.98


def test_a_bias_with_leading_ones_is_quantized_per_channel(tmp_path: Path) -> None:
    model = made(
        "g (float[4, 8] x) => (float[4, 8] y) { n = LayerNormalization (x, s, b)\n y = MatMul (n, w) }",
        s=normal(8),
        b=normal(1, 8),
        w=normal(8, 8),
    )
    result = step(tmp_path, model, "static_quantization", True, per_channel=True)
    assert result["outcome"] == "ok", result["message"]
    assert result["attempts"] == []


def test_the_noted_shape_of_a_bias_with_leading_ones_is_no_obstacle(tmp_path: Path) -> None:
    model = made("g (float[1, 8] x) => (float[1, 8] y) { y = Gemm (x, w, b) }", w=normal(8, 8), b=normal(1, 8))
    model.graph.value_info.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [1, 8]))
    result = step(tmp_path, model, "static_quantization", True)
    assert result["outcome"] == "ok", result["message"]
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > 0.98


def test_operators_that_the_quantizer_fails_on_are_excluded(tmp_path: Path) -> None:
    """A Softmax behind an operator of unknown type has no range, and the quantizer stops at it."""
    model = made(
        "g (float[2, 4] x) => (float[2, 4] y) { a = MatMul (x, w)\n"
        " f = ai.onnx.ml.Scaler <offset = [0.0], scale = [1.0]> (a)\n y = Softmax (f) }",
        domains=', "ai.onnx.ml": 2',
        w=normal(4, 4),
    )
    results = steps(tmp_path, model, [("name_fix", {}), ("static_quantization", {})], True)
    assert results[-1]["outcome"] == "ok", results[-1]["message"]


def test_the_weights_of_a_gemm_that_adds_a_computed_value_are_not_dequantized_at_run_time(tmp_path: Path) -> None:
    model = made(
        "g (float[2, 16] x) => (float[2, 16] y) { h = Relu (x)\n y = Gemm <transB = 1> (x, w, h) }", w=normal(16, 16)
    )
    result = step(tmp_path, model, "static_quantization", True, per_channel=True)
    assert result["outcome"] == "ok", result["message"]
    assert "Gemm" not in ops(saved(result))
    executed = tmp_path / "executed.onnx"
    write_optimized(Path(result["path"], "model.onnx"), executed, {"graph_optimization_level": "extended"})
    assert "QLinearMatMul" in ops(io.load(executed))


def test_a_softmax_over_thousands_of_values_stays_in_float(tmp_path: Path) -> None:
    """Its probabilities are below one step of the scale that the quantizer gives to every Softmax."""
    model = made(
        "g (float[1, 16] x) => (float[1, 4096] y) { h = MatMul (x, w)\n y = Softmax (h) }", w=normal(16, 4096) / 20
    )
    results = steps(tmp_path, model, [("name_fix", {}), ("static_quantization", {})], True)
    assert results[-1]["outcome"] == "ok", results[-1]["message"]
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(results[-1]), tmp_path, feeds)[0]) > 0.99


@pytest.mark.parametrize("settings", [{}, {"quant_format": "QOperator"}, {"per_channel": True}])
@pytest.mark.parametrize("attributes", ["", "alpha = 0.5, ", "beta = 2.0, ", "alpha = 0.5, beta = 2.0, "])
@pytest.mark.parametrize("bias", [(6,), (1, 6), (1,), (), (1, 1), (4, 6), (4, 1)])
def test_factors_and_biases_of_gemm_keep_their_meaning(
    tmp_path: Path, bias: tuple[int, ...], attributes: str, settings: dict[str, Any]
) -> None:
    model = made(
        f"g (float[4, 8] x) => (float[4, 6] y) {{ y = Gemm <{attributes}transB = 1> (x, w, b) }}",
        w=normal(6, 8),
        b=3 * normal(*bias, seed=1),
    )
    assert largest_error(tmp_path, model, **settings) < 0.03


@pytest.mark.parametrize("quant_format", ["QDQ", "QOperator"])
@pytest.mark.parametrize(
    ("nodes", "weight"),
    [
        ("a = Gemm <transB = 1> (x, w)\n y = MatMul (a, w)", (6, 8)),
        ("a = Gemm <transB = 1> (x, w)\n b = Relu (a)\n y = MatMul (b, w)", (8, 8)),
        ("a = MatMul (x, w)\n y = Mul (a, w)", (8, 8)),
    ],
)
def test_a_weight_that_nodes_use_in_different_ways_is_quantized_for_each(
    tmp_path: Path, nodes: str, weight: tuple[int, int], quant_format: str
) -> None:
    scales = np.float32(10.0) ** np.linspace(-1, 1, weight[0], dtype=np.float32)[:, None]
    model = made(f"g (float[8, 8] x) => (float[8, 8] y) {{ {nodes} }}", w=normal(*weight) * scales)
    assert largest_error(tmp_path, model, quant_format=quant_format, per_channel=True) < 0.05


def largest_error(folder: Path, model: onnx.ModelProto, **settings: Any) -> float:
    """The largest error of the quantized model on its calibration data, as a share of the largest output."""
    result = step(folder, model, "static_quantization", True, **settings)
    assert (result["outcome"], result["attempts"]) == ("ok", []), result["message"]
    feeds = next(synthetic_feeds(model))
    exact, quantized = (outputs(each, folder, feeds)[0] for each in (model, saved(result)))
    return float(np.abs(quantized - exact).max() / np.abs(exact).max())


TEXT = """g (float[N, 3, 8, 8] x) => (float[N, 4, 8, 8] y) {
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    h = HardSigmoid <alpha = 0.1666667, beta = 0.5> (c)
    y = Mul (c, h)
}"""


@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
def test_quantized_hard_swish_stays_in_integers_and_saturates(tmp_path: Path, kind: str) -> None:
    model = made(TEXT, w=3 * normal(4, 3, 3, 3))
    result = step(tmp_path, model, "static_quantization", True, activation_type=kind)
    assert result["outcome"] == "ok", result["message"]
    quantized = saved(result)
    assert "HardSigmoid" not in ops(quantized)
    assert "Add" in ops(quantized)
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)}
    (expected,), (actual,) = outputs(model, tmp_path, feeds), outputs(quantized, tmp_path, feeds)
    assert np.abs(expected).max() > 6, "some values saturate"
    assert np.abs(actual - expected).max() < 0.05 * np.abs(expected).max()


def test_a_hard_sigmoid_whose_result_stays_a_float_is_kept(tmp_path: Path) -> None:
    model = made(TEXT, w=3 * normal(4, 3, 3, 3))
    result = step(tmp_path, model, "static_quantization", True, op_types=["Conv"])
    assert "HardSigmoid" in ops(saved(result))
