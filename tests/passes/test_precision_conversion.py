"""Limits of the float16 converters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import outputs, saved, step
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
def test_a_cast_to_float32_is_preserved(tmp_path: Path, impl: str) -> None:
    model = made(
        "g (int64[2, 4] ids) => (float[2, 3] y) { f = Cast <to = 1> (ids)\n y = MatMul (f, w) }", w=normal(4, 3)
    )
    half(tmp_path, model, impl=impl)


@pytest.mark.parametrize("impl", IMPLS)
def test_an_output_may_also_be_read_inside_the_model(tmp_path: Path, impl: str) -> None:
    model = made(
        "g (float[2, 4] x) => (float[2, 3] h, float[2, 3] y) { h = MatMul (x, w)\n y = Relu (h) }", w=normal(4, 3)
    )
    half(tmp_path, model, impl=impl)


@pytest.mark.parametrize("impl", IMPLS)
def test_unnamed_nodes_and_numeric_constants_are_converted(tmp_path: Path, impl: str) -> None:
    model = made(
        "g (float[2, 4] x) => (float[2, 3] y, float[2, 4] z) { h = MatMul (x, w)\n"
        " c = Constant <value_float = 2.0> ()\n y = Mul (h, c)\n a, i = TopK (x, k)\n z = CumSum (x, axis)\n }",
        w=normal(4, 3),
        k=np.array([2], np.int64),
        axis=np.array(1, np.int64),
    )
    half(tmp_path, model, impl=impl)


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
