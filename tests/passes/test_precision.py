"""Shorter floats, and what the converters get wrong on their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import cosine, ops, outputs, saved, step
from micro_models import MODELS, made, normal

from autoopt.passes.onnx_tools.graphs import is_sorted, sort_nodes
from autoopt.passes.precision.half_floats import Float16
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds

IMPLS = ["occ", "ort"]


def half(folder: Path, model: onnx.ModelProto, **params: Any) -> onnx.ModelProto:
    """The float16 form, checked to compute nearly the same."""
    result = step(folder, model, "float16", **params)
    assert result["outcome"] == "ok", result["message"]
    feeds = next(synthetic_feeds(model))
    for a, b in zip(outputs(model, folder, feeds), outputs(saved(result), folder, feeds), strict=True):
        np.testing.assert_allclose(np.asarray(b, np.float64), a, rtol=0.03, atol=0.03)
    return saved(result)


@pytest.mark.parametrize("impl", IMPLS)
def test_weights_become_half(tmp_path: Path, impl: str) -> None:
    model = half(tmp_path, MODELS["small_cnn"](), impl=impl)
    assert any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in model.graph.initializer)
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


@pytest.mark.parametrize("impl", IMPLS)
def test_a_cast_to_float_stays_one(tmp_path: Path, impl: str) -> None:
    model = made(
        "g (int64[2, 4] ids) => (float[2, 3] y) { f = Cast <to = 1> (ids)\n y = MatMul (f, w) }", w=normal(4, 3)
    )
    half(tmp_path, model, impl=impl)


@pytest.mark.parametrize("impl", IMPLS)
def test_an_output_that_is_read_inside_too(tmp_path: Path, impl: str) -> None:
    model = made(
        "g (float[2, 4] x) => (float[2, 3] h, float[2, 3] y) { h = MatMul (x, w)\n y = Relu (h) }", w=normal(4, 3)
    )
    half(tmp_path, model, impl=impl)


@pytest.mark.parametrize("impl", IMPLS)
def test_nodes_without_names_and_constants_as_numbers(tmp_path: Path, impl: str) -> None:
    model = made(
        "g (float[2, 4] x) => (float[2, 3] y, float[2, 4] z) { h = MatMul (x, w)\n"
        " c = Constant <value_float = 2.0> ()\n y = Mul (h, c)\n a, i = TopK (x, k)\n z = CumSum (x, axis)\n }",
        w=normal(4, 3),
        k=np.array([2], np.int64),
        axis=np.array(1, np.int64),
    )
    half(tmp_path, model, impl=impl)


@pytest.mark.parametrize("impl", IMPLS)
def test_listed_operators_stay_float32(tmp_path: Path, impl: str) -> None:
    model = half(tmp_path, MODELS["mlp"](), impl=impl, op_block_list=["Softmax"])
    softmax = next(node for node in model.graph.node if node.op_type == "Softmax")
    cast = next(node for node in model.graph.node if softmax.input[0] in node.output)
    assert (cast.op_type, cast.attribute[0].i) == ("Cast", onnx.TensorProto.FLOAT)


@pytest.mark.parametrize("name", ["trees", "svm", "int64_ids"])
@pytest.mark.parametrize("impl", IMPLS)
def test_nothing_that_computes_in_float16_is_unchanged(tmp_path: Path, name: str, impl: str) -> None:
    model = MODELS[name]() if name != "int64_ids" else made("g (int64[2] x) => (int64[2] y) { y = Neg (x) }")
    assert step(tmp_path, model, "float16", impl=impl)["outcome"] == "unchanged"


def test_nodes_out_of_order_are_sorted() -> None:
    model = MODELS["mlp"]()
    shuffled = list(reversed(model.graph.node))
    del model.graph.node[:]
    model.graph.node.extend(shuffled)
    assert not is_sorted(model.graph)
    assert is_sorted(sort_nodes(model).graph)
    onnx.checker.check_model(sort_nodes(model), full_check=True)


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
    assert is_sorted(result.graph)


def overflowing() -> onnx.ModelProto:
    """The first product leaves float16's range, the second one is harmless."""
    return made(
        "g (float[2, 4] x) => (float[2, 4] y)"
        "{ [wide] a = MatMul (x, w)\n [back] b = Mul (a, s)\n [fine] y = MatMul (b, v) }",
        w=normal(4, 4) * np.float32(1e6),
        s=np.array(1e-6, np.float32),
        v=normal(4, 4, seed=1),
    )


def test_mixed_precision_keeps_what_float16_ruins(tmp_path: Path) -> None:
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


def test_mixed_precision_finds_nothing_within_an_impossible_tolerance(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["mlp"](), "mixed_float16", True, rtol=1e-12)["outcome"] == "unchanged"


def test_branches_are_not_mixed(tmp_path: Path) -> None:
    model = made(
        """g (float[2, 4] x, bool[1] flag) => (float[2, 4] y)
        { y = If (flag) < then_branch = a () => (float[2, 4] p) { p = Relu (x) },
                          else_branch = b () => (float[2, 4] q) { q = Neg (x) } > }"""
    )
    result = step(tmp_path, model, "mixed_float16", True)
    assert (result["outcome"], "branches" in result["message"]) == ("refused", True)


def test_bfloat16_is_not_offered_to_the_cpu(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["mlp"](), "bfloat16")
    assert result["outcome"] == "refused"
    assert "CUDAExecutionProvider" in result["message"]


def test_bfloat16_converts_or_refuses() -> None:
    from autoopt.passes.base import Refused
    from autoopt.passes.precision.half_floats import BFloat16

    converted = BFloat16()(MODELS["mlp"]())
    onnx.checker.check_model(converted, full_check=True)
    assert any(tensor.data_type == onnx.TensorProto.BFLOAT16 for tensor in converted.graph.initializer)
    assert "MatMul" in ops(converted)
    with pytest.raises(Refused, match="bfloat16"):
        BFloat16()(MODELS["celu_hardswish"]())
