"""Conversion of float16 models to float32."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from bench import compare, saved, step
from micro_models import MODELS, made, normal
from onnx import TensorProto

from autoopt.passes.base import Refused
from autoopt.passes.precision.full_floats import Float32, Float64ToFloat32
from autoopt.passes.precision.half_floats import Float16

HALF = np.float16([[1.5, -2], [0.25, 3]])


def types(model: onnx.ModelProto) -> set[int]:
    """Element types of all weights."""
    return {tensor.data_type for tensor in model.graph.initializer}


@pytest.mark.parametrize("ends", ["float16", "float"])
def test_weights_become_float32_and_the_signature_stays(tmp_path: Path, ends: str) -> None:
    begin, end = ("h = Identity (x)", "y = Identity (m)")
    if ends == "float":
        begin, end = ("h = Cast <to = 10> (x)", "y = Cast <to = 1> (m)")
    model = made(f"g ({ends}[n, 2] x) => ({ends}[n, 2] y) {{ {begin}\n m = MatMul (h, w)\n {end} }}", w=HALF)
    before = onnx.ModelProto.FromString(model.SerializeToString())
    after = Float32()(model)
    onnx.checker.check_model(after, full_check=True)
    assert types(after) == {TensorProto.FLOAT}
    for old, new in zip(
        (*before.graph.input, *before.graph.output), (*after.graph.input, *after.graph.output), strict=True
    ):
        assert (new.name, new.type) == (old.name, old.type)
    assert compare(before, after, tmp_path).status == "same"


def test_bodies_of_branches_are_converted(tmp_path: Path) -> None:
    text = """
        g (float16[2, 2] x, bool c) => (float16[2, 2] y) {
            y = If (c) <
                then_branch = t () => (float16[2, 2] a) { a = Add (x, w) },
                else_branch = e () => (float16[2, 2] b) { k = Constant <value = float16 {2}> ()  b = Mul (x, k) }
            >
        }
    """
    model = made(text, w=HALF)
    before = onnx.ModelProto.FromString(model.SerializeToString())
    after = Float32()(model)
    onnx.checker.check_model(after, full_check=True)
    assert types(after) == {TensorProto.FLOAT}
    assert compare(before, after, tmp_path).status == "same"


@pytest.mark.parametrize("name", ["small_cnn", "mlp", "attention", "branches", "recurrent"])
def test_it_undoes_a_conversion_to_float16(name: str, tmp_path: Path) -> None:
    source = MODELS[name]()
    half = Float16(keep_io_types=False)(onnx.ModelProto.FromString(source.SerializeToString()))
    before = onnx.ModelProto.FromString(half.SerializeToString())
    after = Float32()(half)
    assert TensorProto.FLOAT16 not in types(after)
    assert compare(before, after, tmp_path).status == "same"


def test_float32_models_are_unchanged() -> None:
    model = MODELS["relu_only"]()
    assert Float32()(model) is model


def test_quantized_models_are_refused() -> None:
    text = "g (float16[2] x) => (float16[2] y) { q = QuantizeLinear (x, s)  y = DequantizeLinear (q, s) }"
    model = made(text, s=np.float16(0.1))
    with pytest.raises(Refused, match="dequantize"):
        Float32()(model)


@pytest.mark.parametrize(("kind", "name"), [("bfloat16", "float32"), ("double", "float64_to_float32")])
def test_other_floats_become_float32_inside(tmp_path: Path, kind: str, name: str) -> None:
    weight = normal(4, 4).astype(ml_dtypes.bfloat16 if kind == "bfloat16" else np.float64)
    model = made(f"g ({kind}[n, 4] x) => ({kind}[n, 4] y) {{ h = MatMul (x, w)\n y = Relu (h) }}", w=weight)
    result = step(tmp_path, model, name)
    assert result["outcome"] == "ok", result["message"]
    changed = saved(result)
    assert [tensor.data_type for tensor in changed.graph.initializer] == [onnx.TensorProto.FLOAT]
    assert (changed.graph.input, changed.graph.output) == (model.graph.input, model.graph.output)


def test_float64_beyond_the_range_of_float32_stays_finite() -> None:
    model = made("g (double[2] x) => (double[2] y) { y = Add (x, w) }", w=np.float64([-1.7e308, np.inf]))
    weight = onnx.numpy_helper.to_array(Float64ToFloat32()(model).graph.initializer[0])
    assert weight.tolist() == [np.finfo(np.float32).min, np.inf]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("float16", "dynamic_quantization"),
        *(("double", f"{name}_quantization") for name in ("dynamic", "static", "weight_only", "bnb4")),
    ],
)
def test_quantizers_name_the_pass_for_other_float_types(tmp_path: Path, kind: str, name: str) -> None:
    weight = normal(8, 8).astype(np.float16 if kind == "float16" else np.float64)
    model = made(f"g ({kind}[n, 8] x) => ({kind}[n, 8] y) {{ y = MatMul (x, w) }}", w=weight)
    result = step(tmp_path, model, name, data=name == "static_quantization")
    assert (result["outcome"], ("float32" if kind == "float16" else "float64_to_float32") in result["message"]) == (
        "refused",
        True,
    )
