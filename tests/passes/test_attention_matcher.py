"""What counts as attention, and what only looks like it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import assert_alike, ops, outputs
from micro_models import made, normal

from autoopt.passes.fusion.attention import fuse_attention

BATCH, HEADS, NEW, PAST, SIZE = 2, 4, 3, 5, 8
LAST = "Softmax <axis = -1>"
GUARDS = {
    "not a number": "bad = IsNaN (p)\n w = Where (bad, nothing, p)",
    "all scores are minus infinity": """
        hidden = Equal (m, lowest)\n seen = Not (hidden)\n count = Cast <to = 6> (seen)
        most = ReduceMax <axes = [-1], keepdims = 1> (count)\n any = Cast <to = 9> (most)\n bad = Not (any)
        w = Where (bad, nothing, p)
    """,
    "the least of the scores that are minus infinity": """
        hidden = Equal (lowest, m)\n count = Cast <to = 6> (hidden)
        least = ReduceMin <axes = [-1], keepdims = 1> (count)\n bad = Greater (least, none)
        w = Where (bad, nothing, p)
    """,
}
OTHERS = {
    "the mask, as in DeBERTa": "w = Where (given, nothing, p)",
    "a threshold of probabilities": "bad = Less (p, tenth)\n w = Where (bad, nothing, p)",
    "all but a few probabilities": "few = Greater (p, tenth)\n bad = Not (few)\n w = Where (bad, nothing, p)",
    "rows with a large probability": """
        most = ReduceMax <axes = [-1], keepdims = 1> (p)\n bad = Greater (most, tenth)\n w = Where (bad, nothing, p)
    """,
    "any score is minus infinity": """
        hidden = Equal (m, lowest)\n count = Cast <to = 6> (hidden)
        most = ReduceMax <axes = [-1], keepdims = 1> (count)\n bad = Cast <to = 9> (most)\n w = Where (bad, nothing, p)
    """,
    "ones": "bad = IsNaN (p)\n w = Where (bad, one, p)",
}


def guarded(guard: str, softmax: str = LAST) -> onnx.ModelProto:
    """Attention whose probabilities are replaced where a condition holds."""
    heads = f"float[B, {HEADS}"
    return made(
        f"g ({heads}, S, {SIZE}] q, {heads}, T, {SIZE}] k, {heads}, T, {SIZE}] v, bool[B, 1, S, T] given)"
        f" => ({heads}, S, {SIZE}] y) {{"
        f" kt = Transpose <perm = [0, 1, 3, 2]> (k)\n d = MatMul (q, kt)\n f = Where (given, lowest, nothing)"
        f" m = Add (d, f)\n p = {softmax} (m)\n {guard}\n y = MatMul (w, v) }}",
        nothing=np.float32(0),
        none=np.int32(0),
        one=np.float32(1),
        tenth=np.float32(0.1),
        lowest=np.float32(-np.inf),
    )


def plain_inputs() -> dict[str, np.ndarray]:
    shapes = {"q": NEW, "k": PAST, "v": PAST}
    arrays = {name: normal(BATCH, HEADS, items, SIZE, seed=items) for name, items in shapes.items()}
    given = np.random.default_rng(1).integers(0, 2, (BATCH, 1, NEW, PAST)).astype(bool)
    given[0, :, 1] = True  # a row that sees nothing
    return {**arrays, "given": given}


@pytest.mark.parametrize("guard", list(GUARDS))
def test_zeros_for_rows_that_see_nothing_stay_zeros(tmp_path: Path, guard: str) -> None:
    model = guarded(GUARDS[guard])
    (expected,) = outputs(model, tmp_path, plain_inputs())
    fused, counts = fuse_attention(model, "plain")
    assert counts == {"Attention": 1}
    assert not expected[0, :, 1].any()
    np.testing.assert_allclose(outputs(fused, tmp_path, plain_inputs())[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("guard", list(OTHERS))
def test_probabilities_that_are_changed_for_another_reason_stay(guard: str) -> None:
    model = guarded(OTHERS[guard])
    assert fuse_attention(model, "plain") == (model, {})


@pytest.mark.parametrize("axis", [-2, 0, 1, 2])
def test_probabilities_over_queries_heads_or_items_stay(axis: int) -> None:
    model = guarded("w = Identity (p)", f"Softmax <axis = {axis}>")
    assert fuse_attention(model, "plain") == (model, {})


REPEATED = {"queries": ("1, 4", "B, 4"), "keys and values": ("B, 4", "1, 4"), "the head of queries": ("B, 1", "B, 4")}


@pytest.mark.parametrize("repeated", list(REPEATED))
def test_products_that_repeat_an_item_or_a_head_stay(repeated: str) -> None:
    queries, keys = REPEATED[repeated]
    model = made(
        f"g (float[{queries}, S, 8] q, float[{keys}, T, 8] k, float[{keys}, T, 8] v) => (float[B, 4, S, 8] y) {{"
        f" kt = Transpose <perm = [0, 1, 3, 2]> (k)\n d = MatMul (q, kt)\n p = {LAST} (d)\n y = MatMul (p, v) }}"
    )
    assert fuse_attention(model, "plain") == (model, {})


ROWS = {
    "a row for all queries": (BATCH, 1, 1, PAST),
    "a column for all keys": (1, HEADS, NEW, 1),
    "no axis of items": (HEADS, NEW, PAST),
    "queries and keys": (NEW, PAST),
    "keys": (PAST,),
    "one number": (1, 1, 1, 1),
}


@pytest.mark.parametrize("shape", list(ROWS.values()), ids=list(ROWS))
@pytest.mark.parametrize("is_stated", [True, False])
@pytest.mark.parametrize("transposition", ["0, 1, 3, 2", "0, 2, 3, 1"])
def test_masks_of_any_shape_count(tmp_path: Path, shape: tuple[int, ...], is_stated: bool, transposition: str) -> None:
    sizes = shape if is_stated else tuple("ABCD"[: len(shape)])
    heads = f"float[B, {HEADS}"
    keys = f"{heads}, T, {SIZE}]" if transposition.startswith("0, 1") else f"float[B, T, {HEADS}, {SIZE}]"
    model = made(
        f"g ({heads}, S, {SIZE}] q, {keys} k, {heads}, T, {SIZE}] v, float[{', '.join(map(str, sizes))}] f)"
        f" => ({heads}, S, {SIZE}] y) {{"
        f" kt = Transpose <perm = [{transposition}]> (k)\n d = MatMul (q, kt)\n m = Add (d, f)"
        f" p = {LAST} (m)\n y = MatMul (p, v) }}"
    )
    arrays = {**plain_inputs(), "f": 5 * normal(*shape, seed=3)}
    del arrays["given"]
    if not transposition.startswith("0, 1"):
        arrays["k"] = arrays["k"].transpose(0, 2, 1, 3)
    fused, counts = fuse_attention(model, "plain")
    assert counts == {"Attention": 1}
    assert_alike(model, fused, tmp_path, arrays)


def cached(way: str, cut: bool = False, longest: str = "M") -> onnx.ModelProto:
    """Attention over a cache with half as many heads as the queries have, whose repetition is `way`."""
    repeated = "".join(
        f"{new}u = Unsqueeze ({old}, axis)\n {new}e = Expand ({new}u, groups)\n {new} = Reshape ({new}e, heads)\n"
        for old, new in (("present_key", "keys"), ("present_value", "values"))
    )
    masked = "shape = Shape (present_key)\n n = Gather (shape, axis_2)\n c = Slice (f, zero, n, axis_3)" if cut else ""
    cache = f"float[B, {HEADS // 2}"
    return made(
        f"g (float[B, {HEADS}, S, {SIZE}] q, {cache}, S, {SIZE}] k, {cache}, S, {SIZE}] v, {cache}, P, {SIZE}] pk,"
        f" {cache}, P, {SIZE}] pv, float[B, 1, S, {longest}] f) => (float[B, {HEADS}, S, {SIZE}] y,"
        f" {cache}, T, {SIZE}] present_key, {cache}, T, {SIZE}] present_value) {{"
        f" present_key = Concat <axis = 2> (pk, k)\n present_value = Concat <axis = 2> (pv, v)\n {repeated} {masked}"
        f" kt = Transpose <perm = [0, 1, 3, 2]> (keys)\n d = MatMul (q, kt)\n m = Add (d, {'c' if cut else 'f'})"
        f" p = {LAST} (m)\n y = MatMul (p, values) }}",
        axis=np.array([2 if way == "neighbours" else 1]),
        groups=np.array([1, 1, 2, 1, 1] if way == "neighbours" else [1, 2, 1, 1, 1]),
        heads=np.array([0, HEADS, -1, SIZE]),
        zero=np.array([0]),
        axis_2=np.array([2]),
        axis_3=np.array([3]),
    )


def cached_inputs(longest: int = PAST + NEW) -> dict[str, np.ndarray]:
    shapes = {"q": (HEADS, NEW), "k": (HEADS // 2, NEW), "v": (HEADS // 2, NEW)}
    shapes |= {"pk": (HEADS // 2, PAST), "pv": (HEADS // 2, PAST)}
    arrays = {name: normal(BATCH, *shape, SIZE, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    return {**arrays, "f": normal(BATCH, 1, NEW, longest, seed=9)}


def test_heads_that_are_repeated_one_after_the_other_stay() -> None:
    """The operator gives a head of keys to neighbouring queries."""
    assert fuse_attention(cached("neighbours"), "cached")[1] == {"Attention": 1}
    model = cached("in turns")
    assert fuse_attention(model, "cached") == (model, {})


@pytest.mark.parametrize("longest", [PAST + NEW, PAST + NEW + 4])
def test_a_mask_with_more_columns_than_keys_is_cut(tmp_path: Path, longest: int) -> None:
    model = cached("neighbours", cut=True, longest=str(longest))
    fused, counts = fuse_attention(model, "cached")
    assert counts == {"Attention": 1}
    assert_alike(model, fused, tmp_path, cached_inputs(longest))


def test_a_cache_that_grows_by_heads_stays() -> None:
    model = cached("neighbours")
    for node in model.graph.node:
        if node.op_type == "Concat":
            node.attribute[0].i = 1
    assert "Attention" not in ops(fuse_attention(model, "cached")[0])


FEW, NARROW = 3, 4
BACK = "first, columns, rows"


def exported(
    back: str = BACK, order: str = "0, 2, 1", sizes: str = f"B, {FEW}, T, {NARROW}", seen: str = ""
) -> onnx.ModelProto:
    """Attention as PyTorch exports its one operator; `back` has the sizes after the transposition of keys."""
    returned = f", float[A, C, D] {seen}" if seen else ""
    return made(
        f"g (float[B, {FEW}, S, {NARROW}] q, float[{sizes}] k, float[B, {FEW}, T, {NARROW}] v)"
        f" => (float[B, {FEW}, S, {NARROW}] y{returned}) {{"
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
    model = exported()
    feed = {"q": normal(2, FEW, 5, NARROW), "k": normal(2, FEW, 7, NARROW, seed=1), "v": normal(2, FEW, 7, NARROW)}
    fused, counts = fuse_attention(model, "plain")
    assert counts == {"Attention": 1}
    assert "Softmax" not in ops(fused)
    assert_alike(model, fused, tmp_path, feed)


def test_what_others_read_stays() -> None:
    fused, counts = fuse_attention(exported(seen="k2"), "plain")
    assert counts == {"Attention": 1}
    assert ops(fused).count("Transpose") == 1


@pytest.mark.parametrize(
    "other", [{"back": "first, rows, columns"}, {"order": "0, 1, 2"}, {"sizes": f"B, {FEW}, ?, {NARROW}"}]
)
def test_other_steps_stay(other: dict[str, str]) -> None:
    model = exported(**other)
    for dim in model.graph.input[1].type.tensor_type.shape.dim:
        if dim.dim_param == "?":
            dim.Clear()
    assert fuse_attention(model, "plain") == (model, {})
