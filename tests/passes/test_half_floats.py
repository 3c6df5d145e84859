"""float16 and bfloat16, and the limits of the float16 converters."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import cosine, ops, outputs, saved, step
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from micro_models import MODELS, branches_of_outer_weights, made, normal

from autoopt.model.tensors import weight_bytes
from autoopt.passes.base import Refused
from autoopt.passes.patches.float16_rounding import PIECE, round_to_float16
from autoopt.passes.precision import half_floats
from autoopt.passes.precision.half_floats import BFloat16, Float16
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds

IMPLS = ["occ", "ort"]
SMALLEST, LARGEST = 5.96e-08, 65504.0
"""The converters' limits."""


def half(folder: Path, model: onnx.ModelProto, **params: Any) -> onnx.ModelProto:
    """The float16 form, checked to compute nearly the same."""
    result = step(folder, model, "float16", **params)
    assert result["outcome"] == "ok", result["message"]
    feeds = next(synthetic_feeds(model))
    for a, b in zip(outputs(model, folder, feeds), outputs(saved(result), folder, feeds), strict=True):
        np.testing.assert_allclose(np.asarray(b, np.float64), a, rtol=0.03, atol=0.03)
    return saved(result)


@pytest.fixture(scope="module")
def library() -> Any:
    """onnxruntime's converter, executed again: its function may have been replaced."""
    found = importlib.util.find_spec("onnxruntime.transformers.float16")
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


FLOATS = st.floats(width=32) | st.floats(-(2.0**-23), 2.0**-23, width=32) | st.floats(65000.0, 66000.0, width=32)


@given(hnp.arrays(np.float32, st.integers(0, 20), elements=FLOATS))
def test_weights_are_rounded_as_the_library_does(library: Any, values: np.ndarray) -> None:
    expected = library.convert_np_to_float16(values, SMALLEST, LARGEST)
    np.testing.assert_array_equal(round_to_float16(values, SMALLEST, LARGEST).view(np.uint16), expected.view(np.uint16))


def test_weights_of_several_pieces_are_rounded(library: Any) -> None:
    values = np.linspace(-1e5, 1e5, 2 * PIECE + 7, dtype=np.float32)
    expected = library.convert_np_to_float16(values, SMALLEST, LARGEST)
    np.testing.assert_array_equal(round_to_float16(values, SMALLEST, LARGEST), expected)


LIMITS = {
    "a cast to float32": "g (int64[2, 4] ids) => (float[2, 3] y) { f = Cast <to = 1> (ids)\n y = MatMul (f, w) }",
    "an output that is read": "g (float[2, 4] x) => (float[2, 3] h, float[2, 3] y)"
    " { h = MatMul (x, w)\n y = Relu (h) }",
    "unnamed nodes and numeric constants": "g (float[2, 4] x) => (float[2, 3] y, float[2, 4] z) { h = MatMul (x, w)\n"
    " c = Constant <value_float = 2.0> ()\n y = Mul (h, c)\n a, i = TopK (x, k)\n z = CumSum (x, axis)\n }",
}


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("limit", LIMITS)
def test_limits_of_the_converters_are_worked_around(tmp_path: Path, impl: str, limit: str) -> None:
    weights = {"w": normal(4, 3), "k": np.array([2], np.int64), "axis": np.array(1, np.int64)}
    used = {name: array for name, array in weights.items() if f", {name})" in LIMITS[limit]}
    half(tmp_path, made(LIMITS[limit], **used), impl=impl)


def test_the_converters_result_is_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime's converter leaves casts behind their readers on some models."""
    from onnxruntime.transformers import float16

    real = float16.convert_float_to_float16

    def disorderly(*args: Any, **kwargs: Any) -> onnx.ModelProto:
        model = real(*args, **kwargs)
        nodes = list(reversed(model.graph.node))
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        return model

    monkeypatch.setattr(float16, "convert_float_to_float16", disorderly)
    result = Float16(impl="ort")(MODELS["mlp"]())
    onnx.checker.check_model(result, full_check=True)


@pytest.mark.parametrize("impl", IMPLS)
def test_weights_become_float16(tmp_path: Path, impl: str) -> None:
    model = half(tmp_path, MODELS["small_cnn"](), impl=impl)
    assert any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in model.graph.initializer)
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


@pytest.mark.parametrize("impl", IMPLS)
def test_branches_compute_in_float16_with_the_inputs_of_the_model(tmp_path: Path, impl: str) -> None:
    model = half(tmp_path, branches_of_outer_weights(), impl=impl)
    assert all(value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT16 for value in model.graph.input)
    assert model.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


@pytest.mark.parametrize("impl", IMPLS)
def test_listed_operators_stay_float32(tmp_path: Path, impl: str) -> None:
    model = half(tmp_path, MODELS["mlp"](), impl=impl, op_block_list=["Softmax"])
    softmax = next(node for node in model.graph.node if node.op_type == "Softmax")
    cast = next(node for node in model.graph.node if softmax.input[0] in node.output)
    assert (cast.op_type, cast.attribute[0].i) == ("Cast", onnx.TensorProto.FLOAT)


@pytest.mark.parametrize("name", ["trees", "svm", "int64_ids"])
@pytest.mark.parametrize("impl", IMPLS)
def test_a_model_without_float16_computation_is_unchanged(tmp_path: Path, name: str, impl: str) -> None:
    model = MODELS[name]() if name != "int64_ids" else made("g (int64[2] x) => (int64[2] y) { y = Neg (x) }")
    assert step(tmp_path, model, "float16", impl=impl)["outcome"] == "unchanged"


def test_bfloat16_is_not_offered_to_the_cpu(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["mlp"](), "bfloat16")
    assert result["outcome"] == "refused"
    assert "CUDAExecutionProvider" in result["message"]


def test_bfloat16_names_the_operators_that_it_refuses() -> None:
    model = branches_of_outer_weights()
    assert set(BFloat16.refuses_ops) & set(ops(model))
    with pytest.raises(Refused, match="branches or loops"):
        BFloat16()(model)


def test_bfloat16_converts_or_refuses() -> None:
    converted = BFloat16()(MODELS["mlp"]())
    onnx.checker.check_model(converted, full_check=True)
    assert any(tensor.data_type == onnx.TensorProto.BFLOAT16 for tensor in converted.graph.initializer)
    assert "MatMul" in ops(converted)
    with pytest.raises(Refused, match="bfloat16"):
        BFloat16()(MODELS["celu_hardswish"]())


FUNCTION = """<ir_version: 10, opset_import: ["": 19, "mine": 1]>
    g (float[n, 8] x) => (float[n, 8] y) { y = mine.f (x, w) }
    <domain: "mine", opset_import: ["": 19]> f (x, w) => (o) {
        k = Constant <value_float = 1.0> ()\n t = MatMul (x, w)\n o = Sub (k, t) }"""


@pytest.mark.parametrize("impl", IMPLS)
def test_functions_are_converted_too(tmp_path: Path, impl: str) -> None:
    model = onnx.parser.parse_model(FUNCTION)
    model.graph.initializer.append(onnx.numpy_helper.from_array(normal(8, 8), "w"))
    converted = half(tmp_path, model, impl=impl)
    product = next(node for node in converted.graph.node if node.op_type == "MatMul")
    weight = next(tensor for tensor in converted.graph.initializer if tensor.name in product.input)
    assert weight.data_type == onnx.TensorProto.FLOAT16


@pytest.mark.parametrize("impl", IMPLS)
def test_outputs_of_operators_that_stay_in_float32_keep_their_type(tmp_path: Path, impl: str) -> None:
    model = made("g (float[4, 4] x) => (float[4, 4] y) { h = MatMul (x, w)\n y = Max (h, w) }", w=normal(4, 4))
    result = step(tmp_path, model, "float16", impl=impl)
    assert result["outcome"] == "ok", result["message"]
    assert saved(result).graph.output == model.graph.output


def overflowing() -> onnx.ModelProto:
    """The first product leaves float16's range, the second one is harmless."""
    return made(
        "g (float[2, 4] x) => (float[2, 4] y)"
        "{ [wide] a = MatMul (x, w)\n [back] b = Mul (a, s)\n [fine] y = MatMul (b, v) }",
        w=normal(4, 4) * np.float32(1e6),
        s=np.array(1e-6, np.float32),
        v=normal(4, 4, seed=1),
    )


def test_nodes_that_float16_ruins_stay_in_float32(tmp_path: Path) -> None:
    model = overflowing()
    feeds = next(synthetic_feeds(model))
    expected = outputs(model, tmp_path, feeds)[0]
    result = step(tmp_path, model, "mixed_float16", True)
    assert result["outcome"] == "ok", result["message"]
    mixed = saved(result)
    found = outputs(mixed, tmp_path, feeds)[0]
    assert np.abs(found - expected).max() <= 0.02 * np.abs(expected).max()
    kinds = {tensor.name: tensor.data_type for tensor in mixed.graph.initializer}
    assert kinds["w"] == onnx.TensorProto.FLOAT
    assert kinds["v"] == onnx.TensorProto.FLOAT16
    plain = saved(step(tmp_path, model, "float16"))
    assert not cosine(expected, np.nan_to_num(outputs(plain, tmp_path, feeds)[0])) > 0.999


def test_an_impossible_tolerance_leaves_the_model_unchanged(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["mlp"](), "mixed_float16", True, rtol=1e-12)["outcome"] == "unchanged"


def test_nodes_in_branches_that_float16_ruins_stay_in_float32(tmp_path: Path) -> None:
    """Both branches name a value `a`, and read the same weights of the main graph."""
    model = made(
        """g (float[1, 4] x, bool[1] flag) => (float[1, 4] y)
        { z = MatMul (x, v)
          y = If (flag) <
            then_branch = t () => (float[1, 4] p) { a = MatMul (z, w)\n b = Mul (a, s)\n p = MatMul (b, v) },
            else_branch = e () => (float[1, 4] q) { a = MatMul (x, v)\n q = Add (a, z) } > }""",
        w=normal(4, 4) * np.float32(1e6),
        s=np.array(1e-6, np.float32),
        v=normal(4, 4, seed=1),
    )
    result = step(tmp_path, model, "mixed_float16", True)
    assert result["outcome"] == "ok", result["message"]
    mixed = saved(result)
    kinds = {tensor.name: tensor.data_type for tensor in mixed.graph.initializer}
    assert kinds["w"] == onnx.TensorProto.FLOAT
    assert kinds["v"] == onnx.TensorProto.FLOAT16
    for flag in (True, False):
        feeds = {"x": normal(1, 4, seed=2), "flag": np.array([flag])}
        (found,), (expected,) = outputs(mixed, tmp_path, feeds), outputs(model, tmp_path, feeds)
        assert np.abs(found - expected).max() <= 0.02 * np.abs(expected).max()


def test_a_large_model_gets_few_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = overflowing()
    monkeypatch.setattr(half_floats, "CONVERTED_BYTES", weight_bytes(model))
    assert step(tmp_path, model, "mixed_float16", True)["outcome"] == "unchanged", "one attempt, with all nodes"
