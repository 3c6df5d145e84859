"""Other forms of quantized models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import ops, outputs, saved, step, steps
from micro_models import made, normal

from autoopt.passes.quantize.weight_only import WeightOnlyQuantization


def products() -> onnx.ModelProto:
    """Two products; the blocks of the second are incomplete."""
    return made(
        "g (float[N, 64] x) => (float[N, 24] y) { [a] h = MatMul (x, v)\n [b] y = MatMul (h, w) }",
        v=normal(64, 80),
        w=normal(80, 24, seed=1),
    )


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_weights_stay_the_same(tmp_path: Path, bits: int, symmetric: bool, signed: bool) -> None:
    quantization = {"bits": bits, "is_symmetric": symmetric, "accuracy_level": 1}
    passes: list[tuple[str, dict[str, Any]]] = [
        ("weight_only_quantization", quantization),
        ("matmul_nbits_to_qdq", {"signed": signed}),
    ]
    before, after = map(saved, steps(tmp_path, products(), passes))
    assert ops(after) == ["DequantizeLinear", "MatMul"] * 2
    assert {domain.domain: domain.version for domain in after.opset_import}[""] >= 21
    types = {tensor.data_type for tensor in after.graph.initializer} - {onnx.TensorProto.FLOAT}
    expected = "INT" if signed else "UINT"
    assert types == {onnx.TensorProto.DataType.Value(f"{expected}{8 if bits == 8 else 4}")}
    feed = {"x": normal(4, 64, seed=2)}
    for model in (before, after):
        model.graph.output.extend([onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, ["N", 80])])
    for one, other in zip(*(outputs(model, tmp_path, feed) for model in (before, after)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-2, atol=0.02 * np.abs(one).max())


def test_a_bias_is_added_and_excluded_nodes_stay(tmp_path: Path) -> None:
    quantized = WeightOnlyQuantization(accuracy_level=1)(products())
    assert isinstance(quantized, onnx.ModelProto)
    last = quantized.graph.node[1]
    last.input.extend([""] * (5 - len(last.input)) + ["bias"])
    quantized.graph.initializer.append(onnx.numpy_helper.from_array(normal(24, seed=3), "bias"))
    name = quantized.graph.node[0].name
    after = saved(step(tmp_path, quantized, "matmul_nbits_to_qdq", nodes_to_exclude=[name]))
    assert ops(after) == ["MatMulNBits", "DequantizeLinear", "MatMul", "Add"]


def test_zero_points_in_float_stay(tmp_path: Path) -> None:
    quantized = WeightOnlyQuantization(is_symmetric=False)(products())
    assert isinstance(quantized, onnx.ModelProto)
    for node in quantized.graph.node:
        tensors = {tensor.name: tensor for tensor in quantized.graph.initializer}
        scales = onnx.numpy_helper.to_array(tensors[node.input[2]])
        tensors[node.input[3]].CopyFrom(onnx.numpy_helper.from_array(np.full_like(scales, 7.5), node.input[3]))
    assert step(tmp_path, quantized, "matmul_nbits_to_qdq")["outcome"] == "unchanged"


SIGNED = np.int8(-7)
PAIR = "q = QuantizeLinear (x, scale, zero)\n y = DequantizeLinear (q, scale, zero)"


def quantized(body: str = PAIR, zero: Any = SIGNED, output: str = "float[N, 4] y") -> onnx.ModelProto:
    return made(f"g (float[N, 4] x) => ({output}) {{ {body} }}", scale=np.float32(0.1), zero=zero)


def types(model: onnx.ModelProto) -> list[int]:
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return [kinds[node.input[2]] for node in model.graph.node]


def test_values_stay_the_same(tmp_path: Path) -> None:
    model = quantized()
    result = step(tmp_path, model, "unsigned_activations")
    assert result["outcome"] == "ok", result["message"]
    assert types(saved(result)) == [onnx.TensorProto.UINT8] * 2
    feeds = {"x": np.array([[-100, -1.23, 0.04, 100]], np.float32)}
    np.testing.assert_array_equal(
        outputs(model, tmp_path / "before", feeds)[0], outputs(saved(result), tmp_path / "after", feeds)[0]
    )


@pytest.mark.parametrize(
    "model",
    [
        quantized(zero=np.uint8(7)),
        quantized("y = QuantizeLinear (x, scale, zero)", output="int8[N, 4] y"),
        quantized(PAIR.replace("DequantizeLinear (q", "DequantizeLinear (r").replace("\n", "\n r = Neg (q)\n")),
    ],
    ids=["unsigned already", "an output", "other readers"],
)
def test_others_stay_as_they_are(tmp_path: Path, model: onnx.ModelProto) -> None:
    assert step(tmp_path, model, "unsigned_activations")["outcome"] == "unchanged"
