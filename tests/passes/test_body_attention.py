"""Attention in the branches of an If, as merged decoders have it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import assert_alike, saved, step, steps
from micro_models import made, normal
from onnx import helper

from autoopt.passes.fusion.attention import fuse_attention
from autoopt.passes.fusion.transformer import count_attention

BATCH, HEADS, QUERIES, KEYS, SIZE = 2, 4, 3, 5, 8
BRANCHES = {
    "then_branch": "s = Mul (d, half)",
    "else_branch": """
        shape = Shape (kt)
        count = Gather (shape, last)
        one_count = Unsqueeze (count, zero)
        cut = Slice (f, zero, one_count, last1)
        s = Add (d, cut)
    """,
}
"""Without a mask, and with one that is cut to the number of keys."""


def branch(scores: str, softmax: str) -> onnx.GraphProto:
    return made(
        f"g () => (float[B, {HEADS}, S, {SIZE}] y) {{"
        " kt = Transpose <perm = [0, 2, 3, 1]> (k)\n qh = Transpose <perm = [0, 2, 1, 3]> (q)\n"
        f" vh = Transpose <perm = [0, 2, 1, 3]> (v)\n d = MatMul (qh, kt)\n {scores}\n"
        f" p = {softmax} (s)\n y = MatMul (p, vh) }}"
    ).graph


def branches(softmax: str = "Softmax <axis = -1>") -> onnx.ModelProto:
    """Two kinds of attention to the same values; a name that the fusion makes up is taken outside."""
    model = made(
        f"g (bool[1] use, float[B, S, {HEADS}, {SIZE}] q, float[B, T, {HEADS}, {SIZE}] k,"
        f" float[B, T, {HEADS}, {SIZE}] v, float[B, 1, S, L] f)"
        f" => (float[B, {HEADS}, S, {SIZE}] z, float[B, 1, S, L] t)"
        " { y_keys = Neg (f)\n t = Neg (y_keys) }",
        half=np.float32(0.5),
        last=np.array(3),
        last1=np.array([3]),
        zero=np.array([0]),
    )
    graphs = {name: branch(scores, softmax) for name, scores in BRANCHES.items()}
    model.graph.node.append(helper.make_node("If", ["use"], ["z"], **graphs))
    return model


def feed(use: bool) -> dict[str, np.ndarray]:
    arrays = {name: normal(BATCH, KEYS, HEADS, SIZE, seed=seed) for seed, name in enumerate("kv")}
    arrays["q"] = normal(BATCH, QUERIES, HEADS, SIZE, seed=5)
    mask = normal(BATCH, 1, QUERIES, KEYS + 2, seed=6)
    mask[1, :, 0] = np.finfo(np.float32).min  # a row of padding sees nothing
    return {**arrays, "f": mask, "use": np.array([use])}


@pytest.mark.parametrize("use", [True, False])
def test_both_branches_compute_the_same_with_the_operator(tmp_path: Path, use: bool) -> None:
    model = branches()
    fused, counts = fuse_attention(model, "bodies")
    assert counts == {"Attention": 2}
    assert_alike(model, fused, tmp_path, feed(use))


def test_branches_without_attention_stay() -> None:
    model = branches("Sigmoid")
    assert fuse_attention(model, "bodies") == (model, {})


def test_the_pass_reaches_branches(tmp_path: Path) -> None:
    result = step(tmp_path, branches(), "transformer_fusion")
    assert result["outcome"] == "ok", result["message"]
    assert count_attention(saved(result)) == 2


def test_dynamic_quantization_leaves_the_operator_in_branches(tmp_path: Path) -> None:
    """onnxruntime's quantizer takes it for its own operator of that name."""
    model = branches()
    model.graph.initializer.append(onnx.numpy_helper.from_array(normal(SIZE, SIZE), "w"))
    for attribute in model.graph.node[-1].attribute:
        attribute.g.node[-1].output[0] = "mixed"
        attribute.g.node.append(helper.make_node("MatMul", ["mixed", "w"], ["y"], "product"))
    result = steps(tmp_path, model, [("transformer_fusion", {}), ("dynamic_quantization", {})])[-1]
    assert result["outcome"] == "ok", result["message"]
    assert count_attention(saved(result)) == 2
