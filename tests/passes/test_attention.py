"""Attention over a key-value cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import assert_alike, ops, outputs
from micro_models import made, normal

from autoopt.passes.fusion.attention import fuse_attention

BATCH, HEADS, NEW, PAST, SIZE = 2, 4, 3, 5, 8
REPEATED = """
    ku = Unsqueeze (present_key, two)
    ke = Expand (ku, groups)
    keys = Reshape (ke, heads)
    vu = Unsqueeze (present_value, two)
    ve = Expand (vu, groups)
    values = Reshape (ve, heads)
"""
MASKS = {
    "none": "m = Mul (d, half)",
    "additive": "m = Add (f, d)",
    "constant": "m = Mul (half, third)",
    "cut for each layer": """
        shape = Shape (keys)
        length = Gather (shape, two)
        cut = Slice (mask, zero, length, three, one)
        low = Where (cut, nothing, lowest)
        m = Add (d, low)
    """,
    "computed from the length of the cache": """
        shape = Shape (present_key)
        length = Gather (shape, two)
        fraction = Cast <to = 1> (length)
        rise = Mul (f, fraction)
        m = Add (d, rise)
    """,
}
CONSTANTS = {
    "zero": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "three": np.array([3]),
    "heads": np.array([0, HEADS, -1, SIZE]),
    "half": np.float32(0.5),
    "third": np.float32(1 / 3),
    "nothing": np.float32(0),
    "lowest": np.float32(-np.inf),
}


def attention(groups: int, mask: str, softmax: str = "Softmax <axis = -1>") -> onnx.ModelProto:
    """Attention as exporters write it: heads of keys and values are repeated, queries and keys scaled."""
    cached = HEADS // groups
    body = f"""
        present_key = Concat <axis = -2> (past_key, k)
        present_value = Concat <axis = 2> (past_value, v)
        {REPEATED if groups > 1 else ""}
        transposed = Transpose <perm = [0, 1, 3, 2]> (keys)
        kt = Mul (transposed, third)
        qs = Mul (q, half)
        d = MatMul (qs, kt)
        {MASKS[mask]}
        p = {softmax} (m)
        y = MatMul (p, values)
    """
    if groups == 1:
        body = body.replace("(keys)", "(present_key)").replace("values)", "present_value)")
    constants = {**CONSTANTS, "groups": np.array([1, 1, groups, 1, 1])}
    return made(
        f"g (float[B, {HEADS}, S, {SIZE}] q, float[B, {cached}, S, {SIZE}] k, float[B, {cached}, S, {SIZE}] v,"
        f" float[B, {cached}, P, {SIZE}] past_key, float[B, {cached}, P, {SIZE}] past_value,"
        f" bool[B, 1, S, T] mask, float[B, 1, S, T] f)"
        f" => (float[B, {HEADS}, S, {SIZE}] y, float[B, {cached}, T, {SIZE}] present_key,"
        f" float[B, {cached}, T, {SIZE}] present_value) {{ {body} }}",
        **{name: array for name, array in constants.items() if name in body},
    )


def feed(groups: int) -> dict[str, np.ndarray]:
    cached = HEADS // groups
    shapes = {"q": (HEADS, NEW), "k": (cached, NEW), "v": (cached, NEW), "past_key": (cached, PAST)}
    shapes["past_value"] = (cached, PAST)
    arrays = {name: normal(BATCH, *shape, SIZE, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    visible = np.tril(np.ones((BATCH, 1, NEW, PAST + NEW), bool), PAST)
    visible[1, :, :, :2] = False  # padded
    return {**arrays, "mask": visible, "f": normal(BATCH, 1, NEW, PAST + NEW, seed=9)}


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("mask", [mask for mask in MASKS if mask != "constant"])
def test_the_operator_computes_the_same_and_keeps_the_cache(tmp_path: Path, groups: int, mask: str) -> None:
    model = attention(groups, mask)
    fused, counts = fuse_attention(model, "cached")
    assert counts == {"Attention": 1}
    assert "Softmax" not in ops(fused)
    assert_alike(model, fused, tmp_path, feed(groups))


LOWEST = np.finfo(np.float32).min


def visible_but_one_row() -> np.ndarray:
    visible = np.tril(np.ones((BATCH, 1, NEW, PAST + NEW), bool), PAST)
    visible[1, :, 0] = False
    return visible


@pytest.mark.parametrize("mask", ["additive", "cut for each layer"])
@pytest.mark.parametrize("number", [LOWEST, np.float32(-1e9), np.float32(-np.inf)])
def test_a_row_that_sees_nothing_stays_as_it_is(tmp_path: Path, mask: str, number: np.float32) -> None:
    model = attention(2, mask)
    for tensor in model.graph.initializer:
        if tensor.name == "lowest":
            tensor.CopyFrom(onnx.numpy_helper.from_array(number, "lowest"))
    visible = visible_but_one_row()
    arrays = {**feed(2), "mask": visible, "f": np.where(visible, np.float32(0), number)}
    expected = outputs(model, tmp_path, arrays)
    fused, counts = fuse_attention(model, "cached")
    assert counts == {"Attention": 1}
    result = outputs(fused, tmp_path, arrays)
    if np.isfinite(number):
        np.testing.assert_allclose(result[0], expected[0], rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_allclose(result[0], np.nan_to_num(expected[0]), rtol=1e-4, atol=1e-5)


def test_other_products_with_a_cache_stay() -> None:
    for model in (attention(2, "none", "Sigmoid"), attention(2, "additive", "Tanh")):
        assert fuse_attention(model, "cached") == (model, {})


def test_probabilities_of_constants_stay() -> None:
    model = attention(2, "constant")
    assert fuse_attention(model, "cached") == (model, {})


@pytest.mark.parametrize("constant", ["half", "third"])
def test_a_factor_of_zero_counts(tmp_path: Path, constant: str) -> None:
    model = attention(1, "additive")
    for tensor in model.graph.initializer:
        if tensor.name == constant:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.float32(0), constant))
    fused, _ = fuse_attention(model, "cached")
    assert_alike(model, fused, tmp_path, feed(1))


def test_a_cache_that_is_no_output_stays() -> None:
    model = attention(2, "none")
    del model.graph.output[1:]
    assert fuse_attention(model, "cached") == (model, {})


def test_a_mask_of_every_second_key_is_not_taken_whole(tmp_path: Path) -> None:
    model = attention(1, "cut for each layer")
    for name, number in {"end": 2**40, "step": 2}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([number]), name))
    for node in model.graph.node:
        if node.op_type == "Slice":
            node.input[:] = [*node.input[:2], "end", "three", "step"]
    arrays = {**feed(1), "mask": np.repeat(feed(1)["mask"], 2, axis=3)}
    fused, counts = fuse_attention(model, "cached")
    assert counts == {"Attention": 1}
    assert_alike(model, fused, tmp_path, arrays)


def test_a_mask_made_from_the_keys_stays() -> None:
    model = attention(1, "additive")
    for node in model.graph.node:
        node.input[:] = ["transposed" if name == "f" else name for name in node.input]
    assert fuse_attention(model, "cached") == (model, {})


def test_a_factor_computed_from_the_size_of_a_head_counts(tmp_path: Path) -> None:
    model = attention(1, "additive")
    computed = made(
        f"g (float[B, {HEADS}, S, {SIZE}] q) => (float[1] factor)"
        "{ shape = Shape (q)\n size = Slice (shape, minus, high)\n"
        " whole = Cast <to = 1> (size)\n factor = Sqrt (whole) }",
        minus=np.array([-1]),
        high=np.array([np.iinfo(np.int64).max]),
    ).graph
    model.graph.initializer.extend(computed.initializer)
    for node in model.graph.node:
        node.input[:] = ["factor" if name == "half" else name for name in node.input]
    for node in reversed(computed.node):
        model.graph.node.insert(0, node)
    fused, counts = fuse_attention(model, "cached")
    assert counts == {"Attention": 1}
    assert "Sqrt" not in ops(fused)
    assert_alike(model, fused, tmp_path, feed(1))


ROTATED = 4
"""The part of a head's width that a partial rotation turns."""
WAYS = {
    "whole": "part = Identity (q)",
    "partial": """
        part = Slice (q, zero, turned_size, three, one)
        rest = Slice (q, turned_size, end, three, one)
    """,
}


def rotation(way: str, items: str) -> onnx.ModelProto:
    """Rotation of queries as exports have it, whose number of heads is open; the angles are cast and scaled by 1.

    `items` is the stated number of items that the angles are for.
    """
    width = ROTATED if way == "partial" else SIZE
    parts = "joined = Concat <axis = -1> (summed, rest)" if way == "partial" else "joined = Identity (summed)"
    body = f"""
        shape_of_q = Shape (flat)\n batch = Slice (shape_of_q, zero, one)\n length = Slice (shape_of_q, one, two)
        target = Concat <axis = 0> (batch, length, open, width)
        heads_last = Reshape (flat, target)\n q = Transpose <perm = [0, 2, 1, 3]> (heads_last)
        {WAYS[way]}
        twice = Concat <axis = -1> (angles, angles)
        cos = Cos (twice)\n cos_1 = Mul (cos, unit)\n cos_2 = Cast <to = 1> (cos_1)\n cos_4d = Unsqueeze (cos_2, one)
        sin = Sin (twice)\n sin_1 = Mul (sin, unit)\n sin_2 = Cast <to = 1> (sin_1)\n sin_4d = Unsqueeze (sin_2, one)
        low = Slice (part, zero, middle, three, one)\n high = Slice (part, middle, end, three, one)
        minus = Neg (high)\n turned = Concat <axis = -1> (minus, low)
        straight = Mul (part, cos_4d)\n across = Mul (turned, sin_4d)\n summed = Add (straight, across)
        {parts}
        rotated = Identity (joined)
    """
    return made(
        f"g (float[B, S, {HEADS * SIZE}] flat, float[{items}, S, {width // 2}] angles)"
        f" => (float[B, H, S, {SIZE}] rotated)"
        f"{{ {body} }}",
        **{name: CONSTANTS[name] for name in ("zero", "one", "two", "three")},
        turned_size=np.array([ROTATED]),
        middle=np.array([width // 2]),
        end=np.array([np.iinfo(np.int64).max]),
        open=np.array([-1]),
        width=np.array([SIZE]),
        unit=np.float32(1),
    )


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize(("items", "count"), [("1", 1), ("A", 1), ("A", BATCH), ("B", BATCH)])
def test_angles_rotate_each_item_also_where_all_items_share_them(
    tmp_path: Path, way: str, items: str, count: int
) -> None:
    model, turned = attention(1, "additive"), rotation(way, items).graph
    given = [value for value in model.graph.input if value.name != "q"]
    del model.graph.input[:]
    model.graph.input.extend([*given, *turned.input])
    known = {tensor.name for tensor in model.graph.initializer}
    model.graph.initializer.extend(tensor for tensor in turned.initializer if tensor.name not in known)
    for node in model.graph.node:
        node.input[:] = ["rotated" if name == "q" else name for name in node.input]
    for node in reversed(turned.node):
        model.graph.node.insert(0, node)
    width = ROTATED if way == "partial" else SIZE
    inputs = {**feed(1), "angles": normal(count, NEW, width // 2, seed=7)}
    inputs["flat"] = inputs.pop("q").reshape(BATCH, NEW, HEADS * SIZE)
    fused, counts = fuse_attention(model, "cached")
    assert counts == {"Attention": 1, "RotaryEmbedding": 1}
    assert "Slice" not in ops(fused)
    assert_alike(model, fused, tmp_path, inputs)


@pytest.mark.parametrize("scores", ["d", "t"])
def test_queries_rotate_without_a_cache(tmp_path: Path, scores: str) -> None:
    """Also where the scores are capped, so that attention stays in parts."""
    model = rotation("whole", "1")
    softened = "t = Tanh (d)\n" if scores == "t" else ""
    after = made(
        f"g (float[B, {HEADS}, T, {SIZE}] k, float[B, {HEADS}, T, {SIZE}] v) => (float[B, {HEADS}, S, {SIZE}] y) {{"
        f" kt = Transpose <perm = [0, 1, 3, 2]> (k)\n d = MatMul (rotated, kt)\n {softened}"
        f" p = Softmax <axis = -1> ({scores})\n y = MatMul (p, v) }}"
    ).graph
    model.graph.node.extend(after.node)
    model.graph.input.extend(after.input)
    model.graph.output[0].CopyFrom(after.output[0])
    inputs = {"flat": normal(BATCH, NEW, HEADS * SIZE), "angles": normal(1, NEW, SIZE // 2, seed=7)}
    inputs |= {name: normal(BATCH, HEADS, PAST, SIZE, seed=seed) for seed, name in enumerate("kv")}
    fused, counts = fuse_attention(model, "plain")
    assert counts == {"RotaryEmbedding": 1} | ({"Attention": 1} if scores == "d" else {})
    assert_alike(model, fused, tmp_path, inputs)


PLAIN_MASKS = {
    "none": "m = Mul (d, half)",
    "for each query": "m = Add (d, f)",
    "for all queries": "m = Add (d, row)",
    "from two numbers": "chosen = Where (seen, nothing, lowest)\n m = Add (d, chosen)",
    "from a constant": "m = Add (d, fixed)",
}


def plain(mask: str, joined: bool, softmax: str = "Softmax <axis = -1>") -> onnx.ModelProto:
    """Attention of an encoder to more items than it has queries; keys are transposed at once or twice."""
    keys = "kt = Transpose <perm = [0, 2, 3, 1]> (k)"
    if not joined:
        keys = "kh = Transpose <perm = [0, 2, 1, 3]> (k)\n kt = Transpose <perm = [0, 1, 3, 2]> (kh)"
    model = made(
        f"g (float[B, S, {HEADS}, {SIZE}] q, float[B, T, {HEADS}, {SIZE}] k, float[B, T, {HEADS}, {SIZE}] v,"
        f" float[B, 1, S, T] f, float[B, 1, 1, T] row, bool[B, 1, S, T] seen) => (float[B, {HEADS}, S, {SIZE}] y) {{"
        f" qh = Transpose <perm = [0, 2, 1, 3]> (q)\n qs = Mul (qh, third)\n {keys}\n ks = Mul (kt, half)"
        f" vh = Transpose <perm = [0, 2, 1, 3]> (v)\n d = MatMul (qs, ks)\n {PLAIN_MASKS[mask]}"
        f" p = {softmax} (m)\n y = MatMul (p, vh) }}",
        half=np.float32(0.5),
        third=np.float32(1 / 3),
        nothing=np.float32(0),
        lowest=LOWEST,
        fixed=np.where(visible_but_one_row(), np.float32(0), LOWEST),
    )
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("mask", list(PLAIN_MASKS))
def test_attention_without_a_cache_computes_the_same(tmp_path: Path, mask: str, joined: bool) -> None:
    model = plain(mask, joined)
    items = PAST + NEW
    shapes = {"q": (NEW, HEADS, SIZE), "k": (items, HEADS, SIZE), "v": (items, HEADS, SIZE)}
    arrays = {name: normal(BATCH, *shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    visible = visible_but_one_row()
    arrays |= {"f": np.where(visible, normal(BATCH, 1, NEW, items, seed=8), LOWEST), "seen": visible}
    arrays["row"] = normal(BATCH, 1, 1, items, seed=9)
    fused, counts = fuse_attention(model, "plain")
    assert counts == {"Attention": 1}
    assert "Softmax" not in ops(fused)
    assert_alike(model, fused, tmp_path, arrays)


def test_scores_that_are_no_probabilities_stay() -> None:
    model = plain("none", joined=True, softmax="Sigmoid")
    assert fuse_attention(model, "plain") == (model, {})
