"""Every rewrite rule applies where it is correct, and only there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import ops
from micro_models import MODELS, made, normal, positive

from autoopt.model import io
from autoopt.passes.rewrites.local_rewrites import RULES, LocalRewrites
from autoopt.passes.verification.equivalence import run_once
from autoopt.passes.verification.output_comparison import compare_outputs
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def rewritten(model: onnx.ModelProto, rule: str, *assume: str) -> onnx.ModelProto:
    """The model after one rule; the very same object where the rule does not fire."""
    return LocalRewrites(rules=[rule], assume=list(assume))(model)


def fires(model: onnx.ModelProto, rule: str, *assume: str) -> bool:
    return rewritten(model, rule, *assume) is not model


def run(model: onnx.ModelProto, folder: Path, feeds: dict[str, Any] | None = None) -> list[Any]:
    return run_once(io.save(model, folder), feeds or next(synthetic_feeds(model)))


FIRES: list[tuple[str, str, tuple[str, ...], str, str]] = [
    # rule, micro-model, assumptions, operator gone, operator there
    ("replace_div_with_mul", "arithmetic", (), "Div", "Mul"),
    ("replace_pow", "arithmetic", (), "Pow", "Mul"),
    ("pre_scale", "arithmetic", (), "", "Mul"),
    ("replace_half_reducemean", "half_mean", (), "ReduceMean", "ReduceSum"),
    ("replace_bn_with_mul_add", "lone_batchnorm", (), "BatchNormalization", "Mul"),
    ("fuse_cast_into_onehot", "one_hot_cast", (), "Cast", "OneHot"),
    ("replace_where_mask", "masked_softmax", (), "", "Add"),
]


@pytest.mark.parametrize(("rule", "name", "assume", "gone", "there"), FIRES, ids=[f[0] for f in FIRES])
def test_a_rule_rewrites_and_keeps_the_numbers(
    rule: str, name: str, assume: tuple[str, ...], gone: str, there: str, tmp_path: Path
) -> None:
    before = MODELS[name]()
    after = rewritten(before, rule, *assume)
    assert after is not before
    assert there in ops(after)
    assert gone == "" or gone not in ops(after)
    onnx.checker.check_model(after, full_check=True)
    feeds = next(synthetic_feeds(before))
    found = compare_outputs(run(before, tmp_path / "a", feeds), run(after, tmp_path / "b", feeds), "equal")
    assert found.status == "same", found


RESTING = [f[:3] for f in FIRES]


@pytest.mark.parametrize(("rule", "name", "assume"), RESTING, ids=[f[0] for f in RESTING])
def test_rewriting_terminates(rule: str, name: str, assume: tuple[str, ...]) -> None:
    once = rewritten(MODELS[name](), rule, *assume)
    assert not fires(once, rule, *assume)


def test_every_rule_is_tested() -> None:
    assert {f[0] for f in FIRES} == set(RULES)


def softmax_mask(mask: Any = None, low: float = -1e9) -> onnx.ModelProto:
    given = "" if mask is not None else ", bool[2, 3] m"
    weights: dict[str, Any] = {"low": np.float32(low)} | ({"m": np.array(mask)} if mask is not None else {})
    text = f"g (float[2, 3] s{given}) => (float[2, 3] y) {{ h = Where (m, s, low)\n y = Softmax (h) }}"
    return made(text, **weights)


GUARDED: dict[str, tuple[str, Callable[[], onnx.ModelProto]]] = {
    "integer division truncates": (
        "replace_div_with_mul",
        lambda: made("g (int32[4] x) => (int32[4] y) { y = Div (x, c) }", c=np.int32(3)),
    ),
    "a zero has no reciprocal": (
        "replace_div_with_mul",
        lambda: made("g (float[2] x) => (float[2] y) { y = Div (x, c) }", c=np.array([1, 0], np.float32)),
    ),
    "the reciprocal of a denormal is infinite": (
        "replace_div_with_mul",
        lambda: made("g (float[1] x) => (float[1] y) { y = Div (x, c) }", c=np.array([1e-42], np.float32)),
    ),
    "an exponent of one half is no product": (
        "replace_pow",
        lambda: made("g (float[2] x) => (float[2] y) { y = Pow (x, c) }", c=np.float32(0.5)),
    ),
    "integers wrap": ("replace_pow", lambda: made("g (int32[2] x) => (int32[2] y) { y = Pow (x, c) }", c=np.int32(2))),
    "scores that are used twice": (
        "pre_scale",
        lambda: made(
            "g (float[2, 2] q, float[2, 2] k) => (float[2, 2] y, float[2, 2] s) { s = MatMul (q, k)\n y = Div (s, c) }",
            c=np.float32(2),
        ),
    ),
    "float32 sums do not overflow": (
        "replace_half_reducemean",
        lambda: made("g (float[2, 4] x) => (float[2, 1] y) { y = ReduceMean <axes = [1]> (x) }"),
    ),
    "an open dimension has no known mean factor": (
        "replace_half_reducemean",
        lambda: made("g (float16[N, 4] x) => (float16[1, 4] y) { y = ReduceMean <axes = [0]> (x) }"),
    ),
    "statistics that are inputs": (
        "replace_bn_with_mul_add",
        lambda: made(
            "g (float[2, 4] x, float[4] m) => (float[2, 4] y) { y = BatchNormalization (x, s, o, m, v) }",
            s=positive(4),
            o=normal(4),
            v=positive(4),
        ),
    ),
    "values that the cast changes": (
        "fuse_cast_into_onehot",
        lambda: made(
            "g (int64[5] i) => (int64[5, 6] y) { h = OneHot (i, d, v)\n y = Cast <to = 7> (h) }",
            d=np.int64(6),
            v=np.array([0.5, 1.5], np.float32),
        ),
    ),
    "a row that is masked altogether": ("replace_where_mask", lambda: softmax_mask([[True] * 3, [False] * 3])),
    "a mask that is not known": ("replace_where_mask", softmax_mask),
    "an infinite penalty": ("replace_where_mask", lambda: softmax_mask([[True] * 3] * 2, -np.inf)),
    "a penalty too small to hide": ("replace_where_mask", lambda: softmax_mask([[True] * 3] * 2, -5.0)),
    "a weight that is an input too": (
        "replace_div_with_mul",
        lambda: made("g (float[2] x, float[2] c) => (float[2] y) { y = Div (x, c) }", c=positive(2)),
    ),
    "an exponent that adds a dimension": (
        "replace_pow",
        lambda: made("g (float x) => (float[1] y) { y = Pow (x, c) }", c=np.array([2], np.float32)),
    ),
    "a factor that may overflow before the product": (
        "pre_scale",
        lambda: made(
            "g (float[2, 2] q, float[2, 2] k) => (float[2, 2] y) { s = MatMul (q, k)\n y = Div (s, c) }",
            c=np.float32(1e-5),
        ),
    ),
    "ReduceSum has axes as an attribute": (
        "replace_half_reducemean",
        lambda: made("g (float16[2, 4] x) => (float16[2, 1] y) { y = ReduceMean <axes = [1]> (x) }", opset=12),
    ),
    "a variance that is not positive": (
        "replace_bn_with_mul_add",
        lambda: made(
            "g (float[2, 4] x) => (float[2, 4] y) { y = BatchNormalization (x, s, o, m, v) }",
            s=positive(4),
            o=normal(4),
            m=normal(4),
            v=-positive(4),
        ),
    ),
    "a softmax along another axis": (
        "replace_where_mask",
        lambda: made(
            "g (float[2, 3] s) => (float[2, 3] y) { h = Where (m, low, s)\n y = Softmax <axis = 0> (h) }",
            m=np.array([[True, False, False], [False, True, False]]),
            low=np.float32(-1e9),
        ),
    ),
}


@pytest.mark.parametrize("why", GUARDED)
def test_a_guard_prevents_an_incorrect_rewrite(why: str) -> None:
    rule, build = GUARDED[why]
    assert not fires(build(), rule)


def test_assumptions_allow_rewrites_of_masks() -> None:
    assert fires(softmax_mask(), "replace_where_mask", "unmasked_rows")


def test_half_mean_does_not_overflow(tmp_path: Path) -> None:
    after = rewritten(MODELS["half_mean"](), "replace_half_reducemean")
    large = {"x": np.full((2, 64), 60000, np.float16)}
    assert np.isfinite(run(after, tmp_path, large)[0]).all()
