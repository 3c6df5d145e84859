"""Rotary embedding that turns neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from bench import assert_alike, ops, outputs
from micro_models import made, normal

from autoopt.passes.fusion.attention import fuse_attention
from autoopt.passes.rewrites.rotary import fuse_interleaved_rotation

BATCH, HEADS, ITEMS, SIZE, ROTATED = 2, 3, 4, 8, 4
LAYOUTS = {"heads last, as in GPT-J": (ITEMS, HEADS), "heads first, as in Cohere": (HEADS, ITEMS)}
DOUBLED = {
    "tiled": "{0}r = Tile ({0}u, repeats)",
    "expanded": "{0}r = Expand ({0}u, repeats)",
    "before the cosine": "{0}r = Tile ({0}u, repeats)",
}


def pairs(even: str, odd: str, negative: str, positive: str) -> str:
    """Lines that stack a negative and a positive part of each head; parts are cut from start to end in steps."""
    return f"""
        even = Slice (part, {even})\n odd = Slice (part, {odd})\n minus = Neg ({negative})
        mu = Unsqueeze (minus, last)\n eu = Unsqueeze ({positive}, last)\n pairs = Concat <axis = -1> (mu, eu)
    """


EVERY_SECOND = "zero, end, three, two", "one, end, three, two"
HALVES = "zero, two, three, one", "two, end, three, one"


def rotation(layout: str, doubled: str = "tiled", width: int = ROTATED, **changed: str) -> onnx.ModelProto:
    """Rotation of the first `width` numbers of each head, with angles for each item; `changed` replaces lines."""
    first, second = ("S", str(HEADS)) if "last" in layout else (str(HEADS), "S")
    lines = {}
    for name, function in (("c", "Cos"), ("s", "Sin")):
        after = f"{name}f = Reshape ({name}r, joined)\n {name}0 = Identity ({name}f)"
        before = f"{name}a = {function} (angles)"
        if doubled == "before the cosine":
            before, after = (
                f"{name}a = Identity (angles)",
                f"{name}f = Reshape ({name}r, joined)\n {name}0 = {function} ({name}f)",
            )
        repeated = DOUBLED[doubled].format(name)
        lines[name] = f"{before}\n {name}u = Unsqueeze ({name}a, heads_and_last)\n {repeated}\n {after}"
        lines[f"{name}4"] = f"{name}4 = Identity ({name}0)"
    lines["part"] = "part = Slice (x, zero, width, three, one)" if width < SIZE else "part = Identity (x)"
    lines["turned"] = pairs(*EVERY_SECOND, "odd", "even")
    lines["sum"] = """
        turned = Reshape (pairs, four)\n straight = Mul (part, c4)\n across = Mul (turned, s4)
        summed = Add (straight, across)
    """
    lines["rest"] = "rest = Slice (x, width, end, three, one)\n y = Concat <axis = -1> (summed, rest)"
    if width == SIZE:
        lines["rest"] = "y = Identity (summed)"
    body = "\n".join({**lines, **changed}.values())
    heads_axis = 2 if "last" in layout else 1
    items = ITEMS if "last" in layout else 1
    model = made(
        f"g (float[B, {first}, {second}, {SIZE}] x, float[B, {ITEMS}, {width // 2}] angles)"
        f" => (float[B, {first}, {second}, {SIZE}] y) {{ {body} }}",
        opset=23,
        ir=10,
        heads_and_last=np.array([heads_axis, 4]),
        repeats=np.array([1, 1, 1, 1, 2]),
        joined=np.array([0, items, ITEMS if heads_axis == 1 else 1, width]),
        four=np.array([0, 0, HEADS if heads_axis == 2 else ITEMS, width]),
        zero=np.array([0]),
        one=np.array([1]),
        two=np.array([2]),
        three=np.array([3]),
        last=np.array([-1]),
        width=np.array([width]),
        end=np.array([np.iinfo(np.int64).max]),
    )
    return onnx.shape_inference.infer_shapes(model)


def rotated(model: onnx.ModelProto) -> onnx.ModelProto:
    graph = ir.from_proto(model)
    fuse_interleaved_rotation(graph)
    return ir.to_proto(graph)


def feed(layout: str, width: int = ROTATED) -> dict[str, np.ndarray]:
    return {"x": normal(BATCH, *LAYOUTS[layout], SIZE), "angles": normal(BATCH, ITEMS, width // 2, seed=1)}


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("doubled", list(DOUBLED))
@pytest.mark.parametrize("width", [2, ROTATED, SIZE])
def test_the_operator_turns_neighbours(tmp_path: Path, layout: str, doubled: str, width: int) -> None:
    model = rotation(layout, doubled, width)
    (expected,) = outputs(model, tmp_path, feed(layout, width))
    model = rotated(model)
    assert "RotaryEmbedding" in ops(model)
    np.testing.assert_allclose(outputs(model, tmp_path, feed(layout, width))[0], expected, rtol=1e-5, atol=1e-6)


OTHERS = {
    "angles that are no pairs": {"c4": "cu2 = Unsqueeze (ca, two)\n c4 = Concat <axis = -1> (cu2, cu2)"},
    "the other sign": {"turned": pairs(*EVERY_SECOND, "even", "odd")},
    "halves, not neighbours": {"turned": pairs(*HALVES, "odd", "even")},
    "overlapping parts": {"turned": pairs(EVERY_SECOND[0], EVERY_SECOND[0], "odd", "even")},
}


@pytest.mark.parametrize("other", list(OTHERS))
def test_other_rotations_stay(other: str) -> None:
    model = rotation("heads last, as in GPT-J", **OTHERS[other])
    model = rotated(model)
    assert "RotaryEmbedding" not in ops(model)


def test_the_rest_of_a_head_from_elsewhere_stays_apart(tmp_path: Path) -> None:
    """The operator leaves the rest of its own input as it is."""
    layout = "heads last, as in GPT-J"
    changed = "low = Neg (x)\n rest = Slice (low, width, end, three, one)\n y = Concat <axis = -1> (summed, rest)"
    model = rotation(layout, rest=changed)
    (expected,) = outputs(model, tmp_path, feed(layout))
    model = rotated(model)
    assert "RotaryEmbedding" in ops(model)
    np.testing.assert_allclose(outputs(model, tmp_path, feed(layout))[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("past", [0, 3])
def test_queries_of_a_decoder_turn_with_shared_angles(tmp_path: Path, past: int) -> None:
    """Attention over a cache whose queries are rotated, with one row of angles for all items."""
    layout = "heads last, as in GPT-J"
    turned = rotation(layout)
    heads = f"float[B, {HEADS}"
    model = made(
        f"g (float[B, S, {HEADS}, {SIZE}] x, float[A, {ITEMS}, {ROTATED // 2}] angles, {heads}, S, {SIZE}] k,"
        f" {heads}, S, {SIZE}] v, {heads}, P, {SIZE}] pk, {heads}, P, {SIZE}] pv, float[B, 1, S, T] f)"
        f" => ({heads}, S, {SIZE}] z, {heads}, T, {SIZE}] keys, {heads}, T, {SIZE}] values) {{"
        f" q = Transpose <perm = [0, 2, 1, 3]> (y)\n keys = Concat <axis = -2> (pk, k)"
        f" values = Concat <axis = -2> (pv, v)\n kt = Transpose <perm = [0, 1, 3, 2]> (keys)\n d = MatMul (q, kt)"
        f" m = Add (d, f)\n p = Softmax <axis = -1> (m)\n z = MatMul (p, values) }}",
        opset=23,
        ir=10,
    )
    model.graph.initializer.extend(turned.graph.initializer)
    for node in reversed(turned.graph.node):
        model.graph.node.insert(0, node)
    arrays = {"x": normal(BATCH, ITEMS, HEADS, SIZE), "angles": normal(1, ITEMS, ROTATED // 2, seed=1)}
    arrays |= {name: normal(BATCH, HEADS, ITEMS, SIZE, seed=ord(name)) for name in "kv"}
    arrays |= {f"p{name}": normal(BATCH, HEADS, past, SIZE, seed=ord(name) + 1) for name in "kv"}
    padded = np.triu(np.full((BATCH, 1, ITEMS, past + ITEMS), np.finfo(np.float32).min, np.float32), past + 1)
    padded[0, ..., : past + 1] = np.finfo(np.float32).min
    arrays["f"] = padded
    fused, counts = fuse_attention(model, "cached")
    assert counts == {"Attention": 1, "RotaryEmbedding": 1}
    assert "Cos" in ops(fused)
    assert_alike(model, fused, tmp_path, arrays)
