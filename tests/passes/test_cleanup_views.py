"""Operators that only change shapes, joined into one Reshape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import compare, ops
from micro_models import made

from autoopt.passes.cleanup.views import MergeReshapes

AXES = {"first": np.array([0]), "last": np.array([-1]), "second": np.array([1]), "flat": np.array([-1])}


def _model(body: str, shape: str = "2, 1, 3", outputs: str = "float[] y") -> onnx.ModelProto:
    model = made(f"g (float[{shape}] x) => ({outputs}) {{ {body} }}", **AXES)
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize(
    ("body", "shape", "remaining"),
    [
        ("a = Relu (x)\n b = Squeeze (a, second)\n y = Unsqueeze (b, first)", "2, 1, 3", ["Relu", "Reshape"]),
        ("a = Relu (x)\n b = Squeeze (a, second)\n y = Unsqueeze (b, first)", "N, 1, 3", ["Relu", "Reshape"]),
        ("b = Squeeze (x, second)\n c = Unsqueeze (b, second)\n y = Relu (c)", "N, 1, 3", ["Relu"]),
        ("b = Squeeze (x, second)\n y = Unsqueeze (b, second)", "N, 1, 3", ["Reshape"]),
        ("b = Transpose <perm = [1, 0, 2]> (x)\n c = Flatten (b)\n y = Relu (c)", "2, 1, 3", ["Reshape", "Relu"]),
        ("y = Transpose <perm = [0, 2, 1]> (x)", "2, 1, 3", ["Reshape"]),
        ("b = Squeeze (x, second)\n y = Unsqueeze (b, first)\n d = Relu (y)", "2, 1, 3", ["Reshape", "Relu"]),
    ],
)
def test_views_in_a_row_become_one(tmp_path: Path, body: str, shape: str, remaining: list[str]) -> None:
    model = _model(body, shape)
    after = MergeReshapes()(model)
    assert ops(after) == remaining
    assert compare(model, after, tmp_path, {"x": np.arange(6, dtype=np.float32).reshape(2, 1, 3)}).status == "same"


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("y = Squeeze (x, second)", "2, 1, 3"),
        ("b = Transpose <perm = [0, 2, 1]> (x)\n y = Squeeze (b, first)", "1, 2, 3"),
        ("y = Transpose <perm = [1, 0, 2]> (x)", "A, B, 3"),
        ("b = Squeeze (x, second)\n y = Unsqueeze (b, first)", "A, 1, B"),
        ("b = Relu (x)\n y = Transpose (b)", "2, 1, 3"),
        ("b = Squeeze (x, second)\n c = Unsqueeze (b, first)\n d = Unsqueeze (b, second)\n y = Add (c, d)", "2, 1, 3"),
    ],
)
def test_other_views_stay(body: str, shape: str) -> None:
    model = _model(body, shape)
    assert MergeReshapes()(model) is model


def test_values_that_outputs_and_bodies_read_stay() -> None:
    model = _model(
        "b = Squeeze (x, second)\n c = Unsqueeze (b, first)\n d = Unsqueeze (c, first)\n "
        "s = ReduceMax <keepdims = 0> (x)\n k = Cast <to = 9> (s)\n "
        "y = If (k) <then_branch = t () => (float[] p) { p = Identity (c) }, "
        "else_branch = e () => (float[] q) { q = Relu (c) }>",
        outputs="float[] y, float[] b, float[] d",
    )
    assert MergeReshapes()(model) is model
