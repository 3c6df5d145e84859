"""Transpositions of matrices in three steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops, outputs
from micro_models import made, normal

from autoopt.passes.fusion.attention import fuse_attention

HEADS, SIZE = 3, 4
BACK = "first, columns, rows"


def attention(
    back: str = BACK, order: str = "0, 2, 1", sizes: str = f"B, {HEADS}, T, {SIZE}", seen: str = ""
) -> onnx.ModelProto:
    """Attention as PyTorch exports its one operator; `back` has the sizes after the transposition of keys."""
    returned = f", float[A, C, D] {seen}" if seen else ""
    return made(
        f"g (float[B, {HEADS}, S, {SIZE}] q, float[{sizes}] k, float[B, {HEADS}, T, {SIZE}] v)"
        f" => (float[B, {HEADS}, S, {SIZE}] y{returned}) {{"
        " sizes = Shape <start = 0> (k)\n first = Slice (sizes, lowest, minus_two)\n"
        " rows = Slice (sizes, minus_two, minus_one)\n columns = Slice (sizes, minus_one, highest)\n"
        " flat = Concat <axis = 0> (minus_one, rows, columns)\n target = Concat <axis = 0> "
        f"({back})\n k1 = Reshape (k, flat)\n k2 = Transpose <perm = [{order}]> (k1)\n k3 = Reshape (k2, target)\n"
        " qs = Mul (q, half)\n ks = Mul (k3, half)\n d = MatMul (qs, ks)\n p = Softmax <axis = -1> (d)\n"
        " none = IsNaN (p)\n shown = Where (none, zero, p)\n y = MatMul (shown, v) }",
        lowest=np.array([np.iinfo(np.int64).min]),
        highest=np.array([np.iinfo(np.int64).max]),
        minus_one=np.array([-1]),
        minus_two=np.array([-2]),
        half=np.float32(0.5),
        zero=np.float32(0),
    )


def test_attention_in_one_operator_is_joined(tmp_path: Path) -> None:
    model = attention()
    feed = {"q": normal(2, HEADS, 5, SIZE), "k": normal(2, HEADS, 7, SIZE, seed=1), "v": normal(2, HEADS, 7, SIZE)}
    (expected,) = outputs(model, tmp_path, feed)
    fused, counts = fuse_attention(model, "plain")
    assert counts == {"Attention": 1}
    assert "Softmax" not in ops(fused)
    np.testing.assert_allclose(outputs(fused, tmp_path, feed)[0], expected, rtol=1e-4, atol=1e-5)


def test_what_others_read_stays() -> None:
    fused, counts = fuse_attention(attention(seen="k2"), "plain")
    assert counts == {"Attention": 1}
    assert ops(fused).count("Transpose") == 1


@pytest.mark.parametrize(
    "other", [{"back": "first, rows, columns"}, {"order": "0, 1, 2"}, {"sizes": f"B, {HEADS}, ?, {SIZE}"}]
)
def test_other_steps_stay(other: dict[str, str]) -> None:
    model = attention(**other)
    for dim in model.graph.input[1].type.tensor_type.shape.dim:
        if dim.dim_param == "?":
            dim.Clear()
    assert fuse_attention(model, "plain") == (model, {})
