"""Conversion of float16 models to float32."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from bench import saved, step
from micro_models import MODELS, made, normal
from onnx import TensorProto
from rule_bench import compare

from autoopt.passes.base import Refused
from autoopt.passes.precision.full_floats import Float32
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


def test_bfloat16_becomes_float32_inside(tmp_path: Path) -> None:
    weight = normal(4, 4).astype(ml_dtypes.bfloat16)
    model = made("g (bfloat16[n, 4] x) => (bfloat16[n, 4] y) { h = MatMul (x, w)\n y = Relu (h) }", w=weight)
    result = step(tmp_path, model, "float32")
    assert result["outcome"] == "ok", result["message"]
    changed = saved(result)
    assert [tensor.data_type for tensor in changed.graph.initializer] == [onnx.TensorProto.FLOAT]
    assert (changed.graph.input, changed.graph.output) == (model.graph.input, model.graph.output)


@pytest.mark.parametrize("kind", ["float16", "double"])
def test_dynamic_quantization_names_the_pass_for_other_float_types(tmp_path: Path, kind: str) -> None:
    weight = normal(8, 8).astype(np.float16 if kind == "float16" else np.float64)
    model = made(f"g ({kind}[n, 8] x) => ({kind}[n, 8] y) {{ y = MatMul (x, w) }}", w=weight)
    result = step(tmp_path, model, "dynamic_quantization")
    assert (result["outcome"], "float32" in result["message"]) == ("refused", True)
