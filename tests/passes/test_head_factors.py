"""Factors of scores that each head has of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops, outputs
from micro_models import made, normal, positive

from autoopt.passes.fusion.cached_attention import fuse_plain_attention
from autoopt.passes.fusion.head_factors import move_head_factors

HEADS, ITEMS, SIZE = 3, 5, 4
FACTORS = {
    "(heads, 1, 1)": 10 * positive(HEADS, 1, 1),
    "(1, heads, 1, 1)": 10 * positive(1, HEADS, 1, 1),
}


def cosine(factor: np.ndarray, order: str = "d, factor", extra: str = "") -> onnx.ModelProto:
    """Cosine attention as SwinV2 has it: normalized queries and keys, a factor for each head, a bias."""
    shape = f"float[B, {HEADS}, {ITEMS}, {SIZE}]"
    returned = ", float[B, A, C, D] z" if extra else ""
    return made(
        f"g ({shape} q, {shape} k, {shape} v) => ({shape} y{returned}) {{"
        f" ql = ReduceL2 <axes = [-1]> (q)\n qn = Div (q, ql)\n kl = ReduceL2 <axes = [-1]> (k)\n kn = Div (k, kl)"
        f" kt = Transpose <perm = [0, 1, 3, 2]> (kn)\n d = MatMul (qn, kt)\n s = Mul ({order})\n m = Add (s, bias)"
        f" p = Softmax <axis = -1> (m)\n y = MatMul (p, v)\n {extra} }}",
        factor=factor,
        bias=normal(1, HEADS, ITEMS, ITEMS, seed=4),
    )


def feed() -> dict[str, np.ndarray]:
    return {name: normal(2, HEADS, ITEMS, SIZE, seed=seed) for seed, name in enumerate("qkv")}


@pytest.mark.parametrize("factor", list(FACTORS))
@pytest.mark.parametrize("order", ["d, factor", "factor, d"])
def test_the_queries_get_the_factor(tmp_path: Path, factor: str, order: str) -> None:
    model = cosine(FACTORS[factor], order)
    (expected,) = outputs(model, tmp_path, feed())
    fused, counts = fuse_plain_attention(model)
    assert counts == {"Attention": 1}
    assert "Softmax" not in ops(fused)
    np.testing.assert_allclose(outputs(fused, tmp_path, feed())[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(HEADS, ITEMS, 1), (1, 1, ITEMS), (ITEMS,), (HEADS, 1, ITEMS)])
def test_factors_of_queries_or_keys_stay(shape: tuple[int, ...]) -> None:
    model = cosine(positive(*shape))
    assert move_head_factors(model) == model
    assert fuse_plain_attention(model) == (model, {})


def test_scores_that_are_read_without_the_factor_stay() -> None:
    model = cosine(FACTORS["(heads, 1, 1)"], extra="z = Neg (d)")
    assert move_head_factors(model) == model


def test_products_of_other_ranks_stay() -> None:
    model = made(
        f"g (float[{SIZE}] q, float[{HEADS}, {SIZE}, {ITEMS}] k) => (float[{HEADS}, {HEADS}, {ITEMS}] y)"
        " { d = MatMul (q, k)\n y = Mul (d, factor) }",
        factor=FACTORS["(heads, 1, 1)"],
    )
    assert move_head_factors(model) == model
