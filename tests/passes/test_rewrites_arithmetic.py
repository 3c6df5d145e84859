"""Rules on arithmetic keep the numbers for any constants that their guards accept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import ops
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import made, normal, positive
from rule_bench import compare, rewrite

FEW = settings(max_examples=12)


@FEW
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=4))
def test_division_by_constants_becomes_a_product(tmp_path: Path, divisors: list[float]) -> None:
    model = made(
        f"g (float[2, {len(divisors)}] x) => (float[2, {len(divisors)}] y) {{ y = Div (x, c) }}",
        c=np.asarray(divisors, np.float32),
    )
    after = rewrite(model, "replace_div_with_mul")
    assert after is not None
    assert ops(after).count("Div") == 0
    assert compare(model, after, tmp_path).status == "same"


@pytest.mark.parametrize("divisor", [0.0, np.inf, np.nan, 1e-42, 3e38])
def test_division_stays_if_a_reciprocal_is_not_a_normal_number(divisor: float) -> None:
    model = made("g (float[2, 2] x) => (float[2, 2] y) { y = Div (x, c) }", c=np.asarray([2.0, divisor], np.float32))
    applied = rewrite(model, "replace_div_with_mul") is not None
    assert applied == (divisor == 3e38)  # 1 / 3e38 is a denormal number, but a number


@pytest.mark.parametrize(("exponent", "products"), [(2, 1), (3, 2), (4, 2)])
def test_small_powers_become_products(tmp_path: Path, exponent: int, products: int) -> None:
    model = made("g (float[2, 4] x) => (float[2, 4] y) { y = Pow (x, c) }", c=np.float32(exponent))
    after = rewrite(model, "replace_pow")
    assert after is not None
    assert ops(after) == ["Mul"] * products
    assert compare(model, after, tmp_path).status == "same"


@pytest.mark.parametrize("exponent", [-1, 0, 0.5, 1, 5])
def test_other_powers_stay(exponent: float) -> None:
    model = made("g (float[2, 4] x) => (float[2, 4] y) { y = Pow (x, c) }", c=np.float32(exponent))
    assert rewrite(model, "replace_pow") is None


def test_a_power_that_adds_a_dimension_stays() -> None:
    model = made("g (float x) => (float[1] y) { y = Pow (x, c) }", c=np.asarray([2], np.float32))
    assert rewrite(model, "replace_pow") is None


def test_scores_are_scaled_before_the_product(tmp_path: Path) -> None:
    model = made(
        "g (float[2, 3] q, float[3, 4] k) => (float[2, 4] y) { s = MatMul (q, k)\n y = Div (s, c) }", c=np.float32(8)
    )
    after = rewrite(model, "pre_scale")
    assert after is not None
    assert ops(after)[-2:] == ["Mul", "MatMul"]
    assert compare(model, after, tmp_path).status == "same"


@pytest.mark.parametrize("divisor", [1e-5, np.inf])
def test_scores_are_not_scaled_by_extreme_factors(divisor: float) -> None:
    model = made(
        "g (float[2, 3] q, float[3, 4] k) => (float[2, 4] y) { s = MatMul (q, k)\n y = Div (s, c) }",
        c=np.float32(divisor),
    )
    assert rewrite(model, "pre_scale") is None


@pytest.mark.parametrize(("axes", "shape"), [("[1]", "2, 1"), ("[-1]", "2, 1"), ("[0, 1]", "1, 1")])
def test_half_means_sum_scaled_values(tmp_path: Path, axes: str, shape: str) -> None:
    model = made(f"g (float16[2, 4] x) => (float16[{shape}] y) {{ y = ReduceMean <axes = {axes}> (x) }}")
    after = rewrite(model, "replace_half_reducemean")
    assert after is not None
    assert "ReduceSum" in ops(after)
    assert compare(model, after, tmp_path).status == "same"


def test_half_means_stay_before_opset_13() -> None:
    model = made("g (float16[2, 4] x) => (float16[2, 1] y) { y = ReduceMean <axes = [1]> (x) }", opset=12)
    assert rewrite(model, "replace_half_reducemean") is None


@pytest.mark.parametrize("shape", ["2, 3", "2, 3, 5", "2, 3, 2, 2"])
def test_batch_normalization_becomes_scale_and_shift(tmp_path: Path, shape: str) -> None:
    model = made(
        f"g (float[{shape}] x) => (float[{shape}] y) {{ y = BatchNormalization <epsilon = 0.01> (x, s, o, m, v) }}",
        s=positive(3),
        o=normal(3),
        m=normal(3, seed=1),
        v=positive(3, seed=2),
    )
    after = rewrite(model, "replace_bn_with_mul_add")
    assert after is not None
    assert "BatchNormalization" not in ops(after)
    assert compare(model, after, tmp_path).status == "same"


def test_a_negative_variance_keeps_batch_normalization() -> None:
    model = made(
        "g (float[2, 3] x) => (float[2, 3] y) { y = BatchNormalization (x, s, o, m, v) }",
        s=positive(3),
        o=normal(3),
        m=normal(3),
        v=-positive(3),
    )
    assert rewrite(model, "replace_bn_with_mul_add") is None
