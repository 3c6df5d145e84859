"""Rules on comparisons, casts, masks and selection keep every value, special ones included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import ops
from micro_models import made
from rule_bench import compare, rewrite

SPECIAL = np.asarray([-np.inf, -2.5, -0.0, 0.0, 1e-30, 3.0, np.inf, np.nan], np.float32)


@pytest.mark.parametrize("bounds", ["x, low", 'x, "", high', "x"])
def test_omitted_bounds_of_clip_are_written_out(tmp_path: Path, bounds: str) -> None:
    inputs = bounds.replace('""', "")
    model = made(f"g (float[8] x) => (float[8] y) {{ y = Clip ({inputs}) }}", low=np.float32(-1), high=np.float32(2))
    after = rewrite(model, "replace_clip_empty_inputs")
    (clip,) = [node for node in after.graph.node if node.op_type == "Clip"]
    assert all(clip.input)
    assert len(clip.input) == 3
    finite = {"x": SPECIAL[1:6].repeat(2)[:8]}
    assert compare(model, after, tmp_path, finite, "lossless").status == "same"


def test_omitted_bounds_of_integers_are_the_limits_of_their_type(tmp_path: Path) -> None:
    model = made("g (int64[3] x) => (int64[3] y) { y = Clip (x, low) }", low=np.int64(0))
    after = rewrite(model, "replace_clip_empty_inputs")
    assert after is not None
    feeds = {"x": np.asarray([np.iinfo(np.int64).min, 5, np.iinfo(np.int64).max])}
    assert compare(model, after, tmp_path, feeds, "lossless").status == "same"


def test_a_cast_through_bool_becomes_a_comparison_with_zero(tmp_path: Path) -> None:
    model = made("g (float[8] x) => (float[8] y) { b = Cast <to = 9> (x)\n y = Cast <to = 1> (b) }")
    after = rewrite(model, "replace_consecutive_cast_with_notzero")
    assert after is not None
    assert ops(after)[-3:] == ["Equal", "Not", "Cast"]
    assert compare(model, after, tmp_path, {"x": SPECIAL}, "lossless").status == "same"


@pytest.mark.parametrize(
    ("rule", "op", "opposite"),
    [("replace_greater_or_equal", "GreaterOrEqual", "Less"), ("replace_less_or_equal", "LessOrEqual", "Greater")],
)
def test_comparisons_of_integers_are_negated(tmp_path: Path, rule: str, op: str, opposite: str) -> None:
    model = made(f"g (int32[3] a, int32[3] b) => (bool[3] y) {{ y = {op} (a, b) }}")
    after = rewrite(model, rule)
    assert after is not None
    assert ops(after) == [opposite, "Not"]
    feeds = {"a": np.asarray([1, 2, 3], np.int32), "b": np.asarray([2, 2, 2], np.int32)}
    assert compare(model, after, tmp_path, feeds, "lossless").status == "same"


def test_selection_becomes_arithmetic_if_the_user_vouches_for_finite_values(tmp_path: Path) -> None:
    model = made("g (bool[4] c, float[4] a, float[4] b) => (float[4] y) { y = Where (c, a, b) }")
    assert rewrite(model, "replace_where_with_mul_add") is None
    after = rewrite(model, "replace_where_with_mul_add", "finite")
    assert after is not None
    assert "Where" not in ops(after)
    assert compare(model, after, tmp_path, tolerance="lossless").status == "same"


MASK = np.asarray([[True, False, False], [False, True, True], [False, False, False]])


@pytest.mark.parametrize("inverted", [False, True])
def test_a_fixed_mask_becomes_a_penalty(tmp_path: Path, inverted: bool) -> None:
    mask, inputs = (~MASK, "m, s, p") if inverted else (MASK, "m, p, s")
    model = made(
        f"g (float[3, 3] s) => (float[3, 3] y) {{ w = Where ({inputs})\n y = Softmax (w) }}", m=mask, p=np.float32(-1e9)
    )
    after = rewrite(model, "replace_where_mask")
    assert after is not None
    assert "Add" in ops(after)
    assert compare(model, after, tmp_path).status == "same"


def test_a_softmax_along_another_axis_keeps_its_mask() -> None:
    model = made(
        "g (float[3, 3] s) => (float[3, 3] y) { w = Where (m, p, s)\n y = Softmax <axis = 0> (w) }",
        m=MASK,
        p=np.float32(-1e9),
    )
    assert rewrite(model, "replace_where_mask") is None


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [-1, 0, 2])
def test_a_triangle_becomes_a_fixed_mask(tmp_path: Path, upper: int, diagonal: int) -> None:
    model = made(
        f"g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ y = Trilu <upper = {upper}> (x, k) }}", k=np.int64(diagonal)
    )
    after = rewrite(model, "replace_trilu")
    assert after is not None
    assert "Trilu" not in ops(after)
    assert compare(model, after, tmp_path, tolerance="lossless").status == "same"
