"""Attention with items and heads in one axis, whose bias rises with the position: BLOOM's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops, outputs
from micro_models import made, normal

from autoopt.passes.fusion.cached_attention import fuse_cached_attention

BATCH, HEADS, NEW, PAST, SIZE = 2, 4, 3, 5, 8
LOWEST = np.finfo(np.float32).min


def attention(items_and_heads: str = "Mul (items, heads)") -> onnx.ModelProto:
    parts = "".join(
        f"""
        {name}_4 = Gather <axis = 3> (apart, {position})
        {name}_heads = Transpose <perm = [0, 2, 1, 3]> ({name}_4)
        """
        for name, position in {"q": "first", "k": "second", "v": "third"}.items()
    )
    return made(
        f"""g (float[B, S, {3 * HEADS * SIZE}] qkv, float[B, {HEADS}, P, {SIZE}] past_key,
            float[B, {HEADS}, P, {SIZE}] past_value, float[B, {HEADS}, 1, T] rise, float[B, 1, S, T] mask)
        => (float[B, {HEADS}, S, {SIZE}] y, float[B, {HEADS}, T, {SIZE}] present_key,
            float[B, {HEADS}, T, {SIZE}] present_value) {{
        shape = Shape (qkv)
        items = Slice (shape, begin, one)
        length = Slice (shape, one, two)
        target_5 = Concat <axis = 0> (items, length, heads, three, size)
        apart = Reshape (qkv, target_5)
        {parts}
        present_key = Concat <axis = 2> (past_key, k_heads)
        present_value = Concat <axis = 2> (past_value, v_heads)
        joined = {items_and_heads}
        flat = Concat <axis = 0> (joined, open, size)
        q3 = Reshape (q_heads, flat)
        k3 = Reshape (present_key, flat)
        v3 = Reshape (present_value, flat)
        kt = Transpose <perm = [0, 2, 1]> (k3)
        raw = MatMul (q3, kt)
        scaled = Mul (raw, half)
        flat_rise = Concat <axis = 0> (joined, one, open)
        rise_3 = Reshape (rise, flat_rise)
        risen = Add (scaled, rise_3)
        split = Concat <axis = 0> (items, heads, length, open)
        scores = Reshape (risen, split)
        masked = Add (scores, mask)
        p = Softmax <axis = -1> (masked)
        flat_p = Concat <axis = 0> (joined, length, open)
        p3 = Reshape (p, flat_p)
        y3 = MatMul (p3, v3)
        y_shape = Shape (y3)
        y_first = Slice (y_shape, begin, one)
        y_items = Div (y_first, heads)
        y_length = Slice (y_shape, one, two)
        y_target = Concat <axis = 0> (y_items, heads, y_length, size)
        y = Reshape (y3, y_target) }}""",
        **{name: np.array([number]) for name, number in NUMBERS.items()},
        **{name: np.array(position) for position, name in enumerate(("first", "second", "third"))},
        half=np.float32(0.5),
    )


NUMBERS = {"begin": 0, "one": 1, "two": 2, "three": 3, "open": -1, "heads": HEADS, "size": SIZE}


def feed() -> dict[str, np.ndarray]:
    visible = np.tril(np.ones((BATCH, 1, NEW, PAST + NEW), bool), PAST)
    visible[1, :, 0] = False  # a row of padding sees nothing
    return {
        "qkv": normal(BATCH, NEW, 3 * HEADS * SIZE),
        "past_key": normal(BATCH, HEADS, PAST, SIZE, seed=1),
        "past_value": normal(BATCH, HEADS, PAST, SIZE, seed=2),
        "rise": normal(BATCH, HEADS, 1, PAST + NEW, seed=3),
        "mask": np.where(visible, np.float32(0), LOWEST),
    }


def test_the_operator_computes_the_same_and_keeps_the_cache(tmp_path: Path) -> None:
    model = attention()
    expected = outputs(model, tmp_path, feed())
    fused, counts = fuse_cached_attention(model)
    assert counts == {"Attention": 1}
    assert "Softmax" not in ops(fused)
    for new, old in zip(outputs(fused, tmp_path, feed()), expected, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("items_and_heads", ["Mul (items, two)", "Add (items, heads)"])
def test_other_ways_to_join_axes_stay(items_and_heads: str) -> None:
    assert fuse_cached_attention(attention(items_and_heads))[1] == {}
