"""Every rewrite rule applies where it is correct, and only there; weights are folded into neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import compare, ops
from micro_models import MODELS, made, normal, positive

from autoopt.model import io
from autoopt.passes.base import Pass
from autoopt.passes.fusion.rule_passes import (
    RULES,
    BatchNormFolding,
    ConvAffineFolding,
    HardSigmoidFusion,
    LocalRewrites,
    MatMulAddGemm,
    PadFolding,
    SplitFusedLayers,
)
from autoopt.passes.verification.equivalence import run_once
from autoopt.passes.verification.output_comparison import compare_outputs
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def rewritten(model: onnx.ModelProto, rule: str, *assume: str, chunks: int = 2) -> onnx.ModelProto:
    """The model after one rule; the very same object where the rule does not fire."""
    return LocalRewrites(rules=[rule], assume=list(assume), chunks=chunks)(model)


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
    ("cumsum_workaround", "negative_axes", (), "", "CumSum"),
    ("topk_workaround", "negative_axes", (), "", "TopK"),
    ("indices_workaround", "negative_axes", (), "", "Gather"),
    ("replace_clip_empty_inputs", "open_clip", (), "", "Clip"),
    ("replace_consecutive_cast_with_notzero", "cast_chain", (), "", "Equal"),
    ("replace_where_with_mul_add", "masked_softmax", ("finite",), "Where", "Mul"),
    ("replace_trilu", "triangle", (), "Trilu", "Where"),
    ("serialize_matmul", "mlp", (), "", "Concat"),
    ("serialize_matmul_add", "mlp", (), "", "Concat"),
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


RESTING = [f[:3] for f in FIRES if not f[0].startswith("serialize")]
"""The parts of a split product divide again in a second run."""


@pytest.mark.parametrize(("rule", "name", "assume"), RESTING, ids=[f[0] for f in RESTING])
def test_rewriting_terminates(rule: str, name: str, assume: tuple[str, ...]) -> None:
    once = rewritten(MODELS[name](), rule, *assume)
    assert not fires(once, rule, *assume)


def test_every_rule_is_tested() -> None:
    assert {f[0] for f in FIRES} | {"replace_nonzero"} == set(RULES)


def where() -> onnx.ModelProto:
    return made("g (bool[4] c, float[4] x, float[4] v) => (float[4] y) { y = Where (c, x, v) }")


def softmax_mask(mask: Any = None, low: float = -1e9) -> onnx.ModelProto:
    given = "" if mask is not None else ", bool[2, 3] m"
    weights: dict[str, Any] = {"low": np.float32(low)} | ({"m": np.array(mask)} if mask is not None else {})
    text = f"g (float[2, 3] s{given}) => (float[2, 3] y) {{ h = Where (m, s, low)\n y = Softmax (h) }}"
    return made(text, **weights)


def one(kind: str, body: str, out: str = "", **weights: Any) -> onnx.ModelProto:
    """A model of one operator from `x` to `y`, which are of this kind."""
    return made(f"g ({kind} x) => ({out or kind} y) {{ y = {body} }}", **weights)


def scores(factor: float, more: str = "") -> onnx.ModelProto:
    """Products divided by a factor."""
    text = f"g (float[2, 2] q, float[2, 2] k) => (float[2, 2] y{more}) {{ s = MatMul (q, k)\n y = Div (s, c) }}"
    return made(text, c=np.float32(factor))


MEAN = "ReduceMean <axes = [1]> (x)"
NORMALIZED = "BatchNormalization (x, s, o, m, v)"
STATISTICS = {"s": positive(4), "o": normal(4), "m": normal(4), "v": positive(4)}
GUARDED: dict[str, tuple[str, onnx.ModelProto]] = {
    "integer division truncates": ("replace_div_with_mul", one("int32[4]", "Div (x, c)", c=np.int32(3))),
    "a zero has no reciprocal": ("replace_div_with_mul", one("float[2]", "Div (x, c)", c=np.float32([1, 0]))),
    "the reciprocal of a denormal is infinite": (
        "replace_div_with_mul",
        one("float[1]", "Div (x, c)", c=np.float32([1e-42])),
    ),
    "a weight that is an input too": (
        "replace_div_with_mul",
        made("g (float[2] x, float[2] c) => (float[2] y) { y = Div (x, c) }", c=positive(2)),
    ),
    "an exponent of one half is no product": ("replace_pow", one("float[2]", "Pow (x, c)", c=np.float32(0.5))),
    "integers wrap": ("replace_pow", one("int32[2]", "Pow (x, c)", c=np.int32(2))),
    "an exponent that adds a dimension": ("replace_pow", one("float", "Pow (x, c)", "float[1]", c=np.float32([2]))),
    "scores that are used twice": ("pre_scale", scores(2, ", float[2, 2] s")),
    "a factor that may overflow before the product": ("pre_scale", scores(1e-5)),
    "float32 sums do not overflow": ("replace_half_reducemean", one("float[2, 4]", MEAN, "float[2, 1]")),
    "an open dimension has no known mean factor": (
        "replace_half_reducemean",
        one("float16[N, 4]", "ReduceMean <axes = [0]> (x)", "float16[1, 4]"),
    ),
    "ReduceSum has axes as an attribute": (
        "replace_half_reducemean",
        made(f"g (float16[2, 4] x) => (float16[2, 1] y) {{ y = {MEAN} }}", opset=12),
    ),
    "statistics that are inputs": (
        "replace_bn_with_mul_add",
        made(f"g (float[2, 4] x, float[4] m) => (float[2, 4] y) {{ y = {NORMALIZED} }}", **STATISTICS),
    ),
    "a variance that is not positive": (
        "replace_bn_with_mul_add",
        one("float[2, 4]", NORMALIZED, **{**STATISTICS, "v": -positive(4)}),
    ),
    "an axis of unknown meaning": (
        "cumsum_workaround",
        made("g (float[2, 8] x, int64 axis) => (float[2, 8] y) { y = CumSum (x, axis) }"),
    ),
    "indices into an open dimension": (
        "indices_workaround",
        one("float[N, 2]", "Gather (x, i)", "float[1, 2]", i=np.array([-1])),
    ),
    "both bounds are there": (
        "replace_clip_empty_inputs",
        one("float[2]", "Clip (x, a, b)", a=np.float32(0), b=np.float32(1)),
    ),
    "a cast through an integer truncates": (
        "replace_consecutive_cast_with_notzero",
        made("g (float[2] x) => (float[2] y) { i = Cast <to = 6> (x)\n y = Cast <to = 1> (i) }"),
    ),
    "a branch may be infinite": ("replace_where_with_mul_add", where()),
    "a fixed branch is infinite": (
        "replace_where_with_mul_add",
        one("bool[2]", "Where (x, u, v)", "float[2]", u=np.float32([np.inf, 1]), v=np.float32([1, 2])),
    ),
    "an open size": ("replace_trilu", one("float[N, 4]", "Trilu (x)")),
    "nobody vouches for one element": ("replace_nonzero", one("int64[4]", "NonZero (x)", "int64[1, 1]")),
    "columns that do not divide": (
        "serialize_matmul",
        one("float[2, 4]", "MatMul (x, w)", "float[2, 3]", w=normal(4, 3)),
    ),
    "values that the cast changes": (
        "fuse_cast_into_onehot",
        made(
            "g (int64[5] i) => (int64[5, 6] y) { h = OneHot (i, d, v)\n y = Cast <to = 7> (h) }",
            d=np.int64(6),
            v=np.float32([0.5, 1.5]),
        ),
    ),
    "a row that is masked altogether": ("replace_where_mask", softmax_mask([[True] * 3, [False] * 3])),
    "a mask that is not known": ("replace_where_mask", softmax_mask()),
    "an infinite penalty": ("replace_where_mask", softmax_mask([[True] * 3] * 2, -np.inf)),
    "a penalty too small to hide": ("replace_where_mask", softmax_mask([[True] * 3] * 2, -5.0)),
    "a softmax along another axis": (
        "replace_where_mask",
        made(
            "g (float[2, 3] s) => (float[2, 3] y) { h = Where (m, low, s)\n y = Softmax <axis = 0> (h) }",
            m=np.array([[True, False, False], [False, True, False]]),
            low=np.float32(-1e9),
        ),
    ),
}
"""Rules, each with a model that it must not rewrite."""


@pytest.mark.parametrize("why", GUARDED)
def test_a_guard_prevents_an_incorrect_rewrite(why: str) -> None:
    rule, model = GUARDED[why]
    assert not fires(model, rule)


def test_a_node_whose_attribute_is_a_parameter_of_its_function_stays() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "own": 1]>
        g (int64[2] x) => (float[3, 2] y) { y = own.part <axis = 0> (x) }
        <domain: "own", opset_import: ["": 17]> part <axis> (a) => (b) {
            depth = Constant <value = int64 {3}> ()
            values = Constant <value = int64[2] {0, 1}> ()
            h = OneHot <axis: int = @axis> (a, depth, values)
            b = Cast <to = 1> (h)
        }"""
    )
    assert not fires(model, "fuse_cast_into_onehot")


def test_assumptions_allow_rewrites_of_masks_and_branches() -> None:
    assert fires(softmax_mask(), "replace_where_mask", "unmasked_rows")
    assert fires(where(), "replace_where_with_mul_add", "finite")


def test_nonzero_of_exactly_one_element_becomes_argmax(tmp_path: Path) -> None:
    model = made("g (float[4] x) => (int64[1, 1] y) { y = NonZero (x) }")
    after = rewritten(model, "replace_nonzero", "one_nonzero")
    feeds = {"x": np.array([0, 0, -3, 0], np.float32)}
    assert run(after, tmp_path / "b", feeds)[0].tolist() == run(model, tmp_path / "a", feeds)[0].tolist() == [[2]]


def test_half_mean_does_not_overflow(tmp_path: Path) -> None:
    after = rewritten(MODELS["half_mean"](), "replace_half_reducemean")
    large = {"x": np.full((2, 64), 60000, np.float16)}
    assert np.isfinite(run(after, tmp_path, large)[0]).all()


def test_clip_treats_infinities_and_nan_as_before(tmp_path: Path) -> None:
    model = MODELS["open_clip"]()
    feeds = {"x": np.array([[-np.inf, np.inf, np.nan, 0.25]] * 2, np.float32)}
    after = rewritten(model, "replace_clip_empty_inputs")
    np.testing.assert_array_equal(run(after, tmp_path / "b", feeds)[0], run(model, tmp_path / "a", feeds)[0])


def test_a_product_is_split_into_equal_parts() -> None:
    after = rewritten(MODELS["mlp"](), "serialize_matmul", chunks=4)
    assert ops(after).count("MatMul") == 8


FOLDED = [
    (BatchNormFolding(), "conv_batchnorm", ["Conv", "Relu"]),
    (BatchNormFolding(), "gemm_batchnorm", ["Gemm"]),
    (ConvAffineFolding(), "conv_scale_shift", ["Conv"]),
    (PadFolding(), "pad_conv", ["Conv"]),
]


@pytest.mark.parametrize(("pass_", "name", "remaining"), FOLDED, ids=[name for _, name, _ in FOLDED])
def test_weights_are_folded_and_outputs_stay_equal(
    tmp_path: Path, pass_: Pass, name: str, remaining: list[str]
) -> None:
    model = MODELS[name]()
    after = pass_(model)
    assert set(remaining) <= set(ops(after))
    assert len(ops(after)) < len(ops(model))
    assert compare(model, after, tmp_path).status == "same"


@pytest.mark.parametrize(
    ("pass_", "name"),
    [
        (BatchNormFolding(), "relu_only"),
        (BatchNormFolding(), "lone_batchnorm"),
        (PadFolding(), "relu_only"),
        (MatMulAddGemm(), "relu_only"),
        (HardSigmoidFusion(), "relu_only"),
        (SplitFusedLayers(), "small_cnn"),
    ],
)
def test_models_without_the_pattern_are_unchanged(pass_: Pass, name: str) -> None:
    model = MODELS[name]()
    assert pass_(model) is model


def test_matmul_and_add_become_gemm(tmp_path: Path) -> None:
    model = MODELS["mlp"]()
    gemm = MatMulAddGemm(direction="gemm")(model)
    assert "Gemm" in ops(gemm)
    assert "MatMul" not in ops(gemm)
    assert compare(model, gemm, tmp_path).status == "same"


def test_gemm_becomes_matmul_and_add(tmp_path: Path) -> None:
    model = made(
        "g (float[4, N] x) => (float[N, 3] y){ y = Gemm <alpha = 2.0, beta = 3.0, transA = 1, transB = 1> (x, w, b) }",
        w=normal(3, 4),
        b=normal(3),
    )
    after = MatMulAddGemm()(model)
    assert ops(after) == ["Transpose", "MatMul", "Add"]
    assert compare(model, after, tmp_path).status == "same"


CONSTANTS = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6), "sixth": np.float32(1 / 6)}
TEXT = "g (float[2, 4] x) => (float[2, 4] y) {{ a = Add ({terms})\n c = Clip (a, zero, six)\n {rest} }}"


@pytest.mark.parametrize(
    ("terms", "rest", "remaining"),
    [
        ("x, three", "y = Div (c, six)", ["HardSigmoid"]),
        ("three, x", "y = Mul (sixth, c)", ["HardSigmoid"]),
        ("x, three", "p = Mul (x, c)\n y = Div (p, six)", ["HardSigmoid", "Mul"]),
        ("x, three", "p = Mul (c, x)\n y = Mul (p, sixth)", ["HardSigmoid", "Mul"]),
    ],
)
def test_hard_sigmoid_and_hard_swish_are_joined_in_every_form(
    tmp_path: Path, terms: str, rest: str, remaining: list[str]
) -> None:
    model = made(TEXT.format(terms=terms, rest=rest), **CONSTANTS)
    after = HardSigmoidFusion()(model)
    assert [op for op in ops(after) if op != "Constant"] == remaining
    assert compare(model, after, tmp_path).status == "same"


@pytest.mark.parametrize(
    ("rest", "changes"),
    [
        ("y = Div (c, three)", {}),
        ("y = Div (c, six)", {"zero": np.float32(-1)}),
        ("y = Div (c, six)", {"six": np.float32([6, 6, 6, 5])}),
        ("y = Div (c, six)\n d = Neg (c)", {}),
    ],
)
def test_other_clipped_sums_stay(rest: str, changes: dict[str, np.ndarray]) -> None:
    text = TEXT.format(terms="x, three", rest=rest)
    if "Neg" in rest:
        text = text.replace("(float[2, 4] y)", "(float[2, 4] y, float[2, 4] d)")
    model = made(text, **{**CONSTANTS, **changes})
    assert HardSigmoidFusion()(model) is model
