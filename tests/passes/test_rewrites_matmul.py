"""Rules on matrix products."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import ops
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import MODELS, made, normal
from rule_bench import compare, rewrite

FEW = settings(max_examples=10)


@FEW
@given(st.integers(2, 5), st.integers(1, 4), st.booleans())
def test_split_products_equal_the_whole(tmp_path: Path, chunks: int, width: int, bias: bool) -> None:
    columns = chunks * width
    text = f"g (float[3, 4] x) => (float[3, {columns}] y)"
    if bias:
        model = made(f"{text} {{ p = MatMul (x, w)\n y = Add (p, b) }}", w=normal(4, columns), b=normal(columns))
        after = rewrite(model, "serialize_matmul_add", chunks=chunks)
    else:
        model = made(f"{text} {{ y = MatMul (x, w) }}", w=normal(4, columns))
        after = rewrite(model, "serialize_matmul", chunks=chunks)
    assert after is not None
    assert ops(after).count("MatMul") == chunks
    assert compare(model, after, tmp_path).status == "same"


def test_columns_that_do_not_divide_stay() -> None:
    model = made("g (float[2, 4] x) => (float[2, 6] y) { y = MatMul (x, w) }", w=normal(4, 6))
    assert rewrite(model, "serialize_matmul", chunks=4) is None
    assert rewrite(model, "serialize_matmul", chunks=7) is None


def test_an_addend_that_is_not_a_bias_stays() -> None:
    model = made(
        "g (float[2, 4] x) => (float[2, 6] y) { p = MatMul (x, w)\n y = Add (p, b) }", w=normal(4, 6), b=normal(2, 6)
    )
    assert rewrite(model, "serialize_matmul_add") is None


def test_a_rotated_half_becomes_a_product_with_a_fixed_matrix(tmp_path: Path) -> None:
    model = MODELS["rotate_half"]()
    after = rewrite(model, "matmul_rotary_embedding", "finite")
    assert after is not None
    assert ops(after).count("MatMul") == 1
    assert not {"Slice", "Concat", "Neg"} & set(ops(after))
    assert compare(model, after, tmp_path).status == "same"


ROTATION = (
    "g (float[2, {size}] x) => (float[2, {size}] y)"
    "{{ back = Slice (x, s1, e1, a)\n front = Slice (x, s2, e2, a)\n minus = Neg (back)\n"
    "y = Concat <axis = 1> (minus, front) }}"
)


@pytest.mark.parametrize(
    ("size", "slices"),
    [
        (6, (2, 6, 0, 2)),  # not the halves
        (6, (0, 3, 3, 6)),  # the halves the other way round
        (5, (3, 5, 0, 3)),  # an odd dimension
    ],
)
def test_other_slices_stay(size: int, slices: tuple[int, ...]) -> None:
    s1, e1, s2, e2 = (np.asarray([value], np.int64) for value in slices)
    model = made(ROTATION.format(size=size), s1=s1, e1=e1, s2=s2, e2=e2, a=np.asarray([1], np.int64))
    assert rewrite(model, "matmul_rotary_embedding", "finite") is None
