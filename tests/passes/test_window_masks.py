"""Attention in shifted windows, whose masks are those of Swin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops, outputs
from micro_models import made, normal

from autoopt.passes.fusion.cached_attention import fuse_plain_attention

ITEMS, WINDOWS, HEADS, PLACES, SIZE = 2, 3, 2, 4, 8


def shifted(mask: str = "1, W", items: str = "items", heads: int = HEADS) -> onnx.ModelProto:
    """Attention with a bias for positions and a mask for each of an open number of windows."""
    shape = f"{PLACES}, {HEADS}, {SIZE}"
    return made(
        f"""g (float[N, {shape}] q, float[N, {shape}] k, float[N, {shape}] v,
        float[{mask}, 1, {PLACES}, {PLACES}] mask) => (float[N, {HEADS}, {PLACES}, {SIZE}] y) {{
        qh = Transpose <perm = [0, 2, 1, 3]> (q)
        kt = Transpose <perm = [0, 2, 3, 1]> (k)
        vh = Transpose <perm = [0, 2, 1, 3]> (v)
        d = MatMul (qh, kt)
        scaled = Div (d, four)
        biased = Add (scaled, bias)
        shape_of_q = Shape (q)
        shape_of_mask = Shape (mask)
        all = Gather (shape_of_q, zero)
        windows = Gather (shape_of_mask, one)
        items = Div (all, windows)
        target = Concat <axis = 0> ({items}, windows, rest)
        split = Reshape (biased, target)
        masked = Add (split, mask)
        scores = Reshape (masked, merge)
        p = Softmax <axis = -1> (scores)
        y = MatMul (p, vh) }}""",
        four=np.float32(4),
        bias=normal(1, HEADS, PLACES, PLACES, seed=5),
        rest=np.array([heads, PLACES * HEADS // heads, PLACES]),
        merge=np.array([-1, HEADS, PLACES, PLACES]),
        open=np.array([-1]),
        zero=np.array([0]),
        one=np.array([1]),
    )


def feed() -> dict[str, np.ndarray]:
    arrays = {name: normal(ITEMS * WINDOWS, PLACES, HEADS, SIZE, seed=seed) for seed, name in enumerate("qkv")}
    arrays["mask"] = np.where(normal(1, WINDOWS, 1, PLACES, PLACES, seed=7) > 0, np.float32(0), np.float32(-100))
    return arrays


def test_attention_with_a_mask_for_each_window_computes_the_same(tmp_path: Path) -> None:
    model = shifted()
    expected = outputs(model, tmp_path, feed())[0]
    fused, counts = fuse_plain_attention(model)
    assert counts == {"Attention": 1}
    assert "Softmax" not in ops(fused)
    np.testing.assert_allclose(outputs(fused, tmp_path, feed())[0], expected, rtol=1e-4, atol=1e-5)


def test_masks_that_are_added_one_by_one_count_all(tmp_path: Path) -> None:
    """SwinV2 adds the same mask twice."""
    model = shifted()
    index = [node.output[0] for node in model.graph.node].index("masked")
    model.graph.node[index].output[0] = "once"
    model.graph.node.insert(index + 1, onnx.helper.make_node("Add", ["once", "mask"], ["masked"]))
    arrays = feed()
    arrays["mask"] = arrays["mask"] / 50
    expected = outputs(model, tmp_path, arrays)[0]
    fused, counts = fuse_plain_attention(model)
    assert counts == {"Attention": 1}
    np.testing.assert_allclose(outputs(fused, tmp_path, arrays)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "model", [shifted(mask="A, W"), shifted(items="open"), shifted(heads=1)], ids=["own masks", "open", "other axes"]
)
def test_other_forms_stay(model: onnx.ModelProto) -> None:
    """Each item has its own masks, the number of items is open, or reshaping joins heads and queries."""
    assert fuse_plain_attention(model)[1] == {}


def test_a_constant_bias_for_positions_is_a_mask(tmp_path: Path) -> None:
    model = shifted()
    made_before = [node.output[0] for node in model.graph.node].index("biased") + 1
    del model.graph.node[made_before:-2], model.graph.input[3:]
    model.graph.node[-2].input[0] = "biased"
    given = {name: array for name, array in feed().items() if name in "qkv"}
    expected = outputs(model, tmp_path, given)[0]
    fused, counts = fuse_plain_attention(model)
    assert counts == {"Attention": 1}
    np.testing.assert_allclose(outputs(fused, tmp_path, given)[0], expected, rtol=1e-4, atol=1e-5)
