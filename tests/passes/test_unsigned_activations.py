"""Unsigned activations in place of signed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import outputs, saved, step
from micro_models import made

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
