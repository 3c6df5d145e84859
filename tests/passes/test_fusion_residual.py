"""Residual sums kept apart from the normalization after them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import compare, ops
from micro_models import MODELS, made, normal, positive

from autoopt.model import io
from autoopt.model.session import write_optimized
from autoopt.passes.fusion.residual import SplitSkipNormalization

PARTS = """m = ReduceMean <axes = [-1]> (s)
 d = Sub (s, m)
 q = Pow (d, two)
 v = ReduceMean <axes = [-1]> (q)
 e = Add (v, epsilon)
 r = Sqrt (e)
 n = Div (d, r)
 w = Mul (n, scale)
 y = Add (w, shift)"""


def _model(text: str, opset: int = 17) -> onnx.ModelProto:
    return made(
        f"g (float[1, N, 8] x, float[1, N, 8] z) => {text}",
        opset=opset,
        domains=', "com.microsoft": 1',
        scale=positive(8),
        shift=normal(8),
        bias=normal(8, seed=1),
        two=np.float32(2),
        epsilon=np.float32(1e-5),
    )


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [("x, z, scale", "y"), ("x, z, scale, shift, bias", "y"), ("x, z, scale, , bias", "y, , , s")],
)
def test_a_joined_normalization_becomes_a_sum_and_a_normalization(tmp_path: Path, inputs: str, outputs: str) -> None:
    results = "(float[1, N, 8] y, float[1, N, 8] s)" if "s" in outputs else "(float[1, N, 8] y)"
    model = _model(f"{results} {{ {outputs} = com.microsoft.SkipLayerNormalization <epsilon = 0.01> ({inputs}) }}")
    after = SplitSkipNormalization()(model)
    assert ops(after) == ["Sum", "LayerNormalization"]
    assert compare(model, after, tmp_path).status == "same"


@pytest.mark.parametrize("parts", ["y = LayerNormalization <axis = -1> (s, scale, shift)", PARTS])
def test_onnxruntime_does_not_join_a_protected_sum(tmp_path: Path, parts: str) -> None:
    model = _model(f"(float[1, N, 8] y) {{ s = Add (x, z)\n {parts} }}")
    after = SplitSkipNormalization()(model)
    assert compare(model, after, tmp_path).status == "same"
    for name, graph in (("before", model), ("after", after)):
        write_optimized(io.save(graph, tmp_path / name), tmp_path / f"{name}.onnx", {})
    assert ops(io.load(tmp_path / "before.onnx")) == ["SkipLayerNormalization"]
    assert ops(io.load(tmp_path / "after.onnx")) == ["Sum", "LayerNormalization"]


@pytest.mark.parametrize(
    "model",
    [
        MODELS["relu_only"](),
        _model("(float[1, N, 8] y) { s = Add (x, z)\n m = ReduceMean <axes = [-1]> (s)\n y = Mul (m, s) }"),
        _model("(float[1, N, 8] y, float m) { y, m = com.microsoft.SkipLayerNormalization (x, z, scale) }"),
        _model("(float[1, N, 8] y) { y = com.microsoft.SkipLayerNormalization (x, z, scale) }", opset=13),
        _model(f"(float[1, N, 8] y) {{ s = Add (x, z)\n {PARTS} }}", opset=7),
    ],
)
def test_other_models_are_unchanged(model: onnx.ModelProto) -> None:
    assert SplitSkipNormalization()(model) is model
