"""Quantized models turned back into float models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import cosine, ops, outputs, saved, step, steps
from micro_models import MODELS, made, normal

from autoopt.model.inspection import QUANTIZED_OPS
from autoopt.model.session import write_optimized
from autoopt.model.tensors import op_name
from autoopt.passes.onnx_tools.graphs import walk_nodes
from autoopt.passes.quantize.dequantize import Dequantize
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def relu_cnn() -> onnx.ModelProto:
    """Layers whose Relu and bounded Relu become the limits of quantized values."""
    return made(
        "g (float[N, 3, 8, 8] x) => (float[N, 4, 6, 6] y)"
        "{ a = Conv <pads = [1, 1, 1, 1]> (x, v, b)\n r = Relu (a)\n c = Conv (r, w)\n y = Relu (c) }",
        v=normal(8, 3, 3, 3),
        b=normal(8),
        w=normal(4, 8, 3, 3, seed=1),
    )


def embedded() -> onnx.ModelProto:
    return made(
        "g (int64[N, 6] x) => (float[N, 6, 8] y) { e = Gather (table, x)\n y = MatMul (e, w) }",
        table=normal(50, 32),
        w=normal(32, 8, seed=1),
    )


def tied() -> onnx.ModelProto:
    """A product with the table of tokens transposed."""
    table = normal(50, 32)
    return made(
        "g (int64[N, 6] x) => (float[N, 6, 50] y) { e = Gather (table, x)\n y = MatMul (e, head) }",
        table=table,
        head=np.ascontiguousarray(table.T),
    )


def round_trip(
    model: onnx.ModelProto, name: str, params: Mapping[str, Any], folder: Path, first: str = "name_fix"
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A model quantized by a pass, and then dequantized."""
    passes = [(first, {}), (name, params), ("dequantize", {})]
    results = steps(folder, model, passes, data="static" in name)
    assert [result["outcome"] for result in results[1:]] == ["ok", "ok"], results
    return saved(results[1]), saved(results[2])


STATIC = {"per_channel": True, "activation_type": "QUInt8"}
OPERATORS = {"quant_format": "QOperator", "weight_type": "QUInt8", "activation_type": "QUInt8"}
CASES = [
    (relu_cnn, "static_quantization", STATIC),
    (relu_cnn, "static_quantization", OPERATORS),
    (MODELS["small_cnn"], "static_quantization", STATIC),
    (MODELS["small_cnn"], "static_quantization", OPERATORS),
    (MODELS["gemm_mlp"], "static_quantization", OPERATORS),
    (MODELS["mlp"], "dynamic_quantization", {"per_channel": True}),
    (MODELS["recurrent"], "dynamic_quantization", {}),
    (MODELS["branches"], "dynamic_quantization", {}),
    (relu_cnn, "dynamic_quantization", {"op_types": []}),
    (embedded, "dynamic_quantization", {"op_types": []}),
    (embedded, "weight_only_quantization", {"bits": 4, "embedding_bits": 4}),
    (embedded, "weight_only_quantization", {"bits": 8, "embedding_bits": 2, "is_symmetric": False}),
    (tied, "weight_only_quantization", {"bits": 4, "embedding_bits": 4, "is_symmetric": False}),
    (MODELS["mlp"], "weight_only_quantization", {"bits": 4, "is_symmetric": False}),
    (MODELS["mlp"], "weight_only_quantization", {"bits": 8, "block_size": 16}),
    (MODELS["mlp"], "weight_only_quantization", {"quant_format": "QDQ"}),
]


@pytest.mark.parametrize(("source", "name", "params"), CASES)
def test_what_the_quantizers_make_is_a_float_model_again(
    source: Any, name: str, params: dict[str, Any], tmp_path: Path
) -> None:
    quantized, after = round_trip(source(), name, params, tmp_path)
    assert QUANTIZED_OPS.intersection(map(op_name, walk_nodes(quantized.graph)))
    assert not QUANTIZED_OPS.intersection(map(op_name, walk_nodes(after.graph)))
    feeds = next(synthetic_feeds(source()))
    results = [outputs(model, tmp_path, feeds)[0] for model in (source(), quantized, after)]
    # What is left is the rounding of the weights: to 8 or 4 bits.
    assert cosine(results[0], results[2]) > min(0.9995, cosine(results[0], results[1]) - 0.002)


def test_the_layout_that_the_runtime_saves_for_integers_is_undone(tmp_path: Path) -> None:
    source = made(
        "g (float[1, 3, 16, 16] x) => (float[1, 8] y)"
        "{ a = Conv <pads = [1, 1, 1, 1]> (x, v, b)\n r = Relu (a)\n"
        " p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)\n c = Conv (p, w)\n"
        " d = GlobalAveragePool (c)\n y = Flatten (d) }",
        v=normal(32, 3, 3, 3),
        b=normal(32),
        w=normal(8, 32, 3, 3, seed=1),
    )
    result = steps(tmp_path, source, [("quant_pre_process", {}), ("static_quantization", STATIC)], data=True)[-1]
    write_optimized(Path(result["path"]) / "model.onnx", tmp_path / "saved.onnx", {"graph_optimization_level": "all"})
    optimized = onnx.load(tmp_path / "saved.onnx")
    assert {"Transpose", "NhwcMaxPool"} <= {*ops(optimized)}
    dequantized = saved(step(tmp_path, optimized, "dequantize"))
    assert not QUANTIZED_OPS.intersection(map(op_name, dequantized.graph.node))
    feeds = next(synthetic_feeds(source))
    assert cosine(*(outputs(model, tmp_path, feeds)[0] for model in (source, dequantized))) > 0.999


def test_attention_of_integers_is_attention_again(tmp_path: Path) -> None:
    quantized, after = round_trip(
        MODELS["attention"](), "dynamic_quantization", {}, tmp_path, first="transformer_fusion"
    )
    assert "QAttention" in ops(quantized), "equal sizes of query, key and value are left out"
    assert "Attention" in ops(after)
    feeds = next(synthetic_feeds(MODELS["attention"]()))
    results = [outputs(model, tmp_path, feeds)[0] for model in (MODELS["attention"](), after)]
    assert cosine(*results) > 0.9995


def test_pairs_go_and_weights_become_floats(tmp_path: Path) -> None:
    scales = np.array([0.1, 0.2, 0.3], np.float32)
    weights = (normal(4, 3) * 20).astype(np.int8)
    model = made(
        "g (float[2, 4] x) => (float[2, 3] y)"
        "{ q = QuantizeLinear (x, s, z)\n d = DequantizeLinear (q, s, z)\n"
        "w = DequantizeLinear <axis = 1> (v, t)\n y = MatMul (d, w) }",
        s=np.float32(0.02),
        z=np.uint8(128),
        v=weights,
        t=scales,
    )
    after = Dequantize()(model)
    assert ops(after) == ["MatMul"]
    x = normal(2, 4)
    np.testing.assert_allclose(outputs(after, tmp_path, {"x": x})[0], x @ (weights * scales), rtol=1e-5)


@pytest.mark.parametrize(("opset", "kinds"), [(17, ["Clip"]), (10, ["Relu"])])
def test_values_are_cut_off_where_quantization_cut_them_off(opset: int, kinds: list[str], tmp_path: Path) -> None:
    model = made(
        "g (float[4] x) => (float[4] y) { q = QuantizeLinear (x, s, z)\n y = DequantizeLinear (q, s, z) }",
        opset=opset,
        s=np.float32(0.01),
        z=np.uint8(0),
    )
    after = Dequantize()(model)
    assert ops(after) == kinds
    x = np.array([-1, 0, 0.5, 2], np.float32)
    expected = np.clip(x, 0, 2.55 if kinds == ["Clip"] else None)
    np.testing.assert_allclose(outputs(after, tmp_path, {"x": x})[0], expected, rtol=1e-6)


def test_values_that_callers_give_quantized_stay_so(tmp_path: Path) -> None:
    model = made(
        "g (uint8[2, 4] x) => (uint8[2, 3] y)"
        "{ h = QLinearMatMul (x, s, z, w, t, k, u, z)\n y = com.microsoft.QLinearAdd (h, u, z, h, u, z, u, z) }",
        domains=', "com.microsoft": 1',
        s=np.float32(0.02),
        z=np.uint8(128),
        w=(normal(4, 3) * 20).astype(np.int8),
        t=np.float32(0.1),
        k=np.int8(0),
        u=np.float32(0.3),
    )
    before = outputs(model, tmp_path, {"x": np.full((2, 4), 130, np.uint8)})[0]
    after = Dequantize()(model)
    assert after is model
    assert outputs(after, tmp_path, {"x": np.full((2, 4), 130, np.uint8)})[0].tolist() == before.tolist()


def test_float_models_are_unchanged() -> None:
    model = MODELS["mlp"]()
    assert Dequantize()(model) is model
