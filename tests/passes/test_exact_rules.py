"""Rewriting passes that promise equal results keep them, whatever the constants are."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import made

from autoopt.model.session import make_session
from autoopt.passes.base import Pass
from autoopt.passes.cleanup.simplifiers import OnnxOptimizer, RewriteRules, Simplify
from autoopt.passes.fusion.rule_passes import LocalRewrites, MatMulAddGemm
from autoopt.passes.fusion.transformer import TransformerFusion
from autoopt.passes.patches import exact_rules
from autoopt.passes.shape.inference import MaterializeReshape, ShapeInference

VALUES: Final = np.array([-3, -1, -1e-3, 0, 1e-20, 1e-10, 1e-3, 0.5, 1, 2, 5, 1e4], np.float32)
ALL_RULES: Final = ["noop", "bn", "clip", "pad", "reshape", "bias", "matmul"]
PASSES: Final[dict[str, Pass]] = {
    "rewrite_rules": RewriteRules(rules=ALL_RULES),
    "onnxscript_optimize": Simplify(engine="onnxscript", fuse=False),
    "simplify": Simplify(engine="onnxscript"),
    "onnxslim": Simplify(),
    "onnxoptimizer": OnnxOptimizer(),
    "local_rewrites": LocalRewrites(),
}
ONE_INPUT: Final = "g (float[N] x) => (float[N] y)"


def outputs_of(model: onnx.ModelProto, x: Any, folder: Any) -> Any:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return make_session(path, {"graph_optimization_level": "disable"}).run(None, {"x": x})[0]


def assert_equal_results(model: onnx.ModelProto, x: Any, folder: Any, names: Any = tuple(PASSES)) -> None:
    before = outputs_of(model, x, folder)
    for name in names:
        after = outputs_of(PASSES[name](model), x, folder)
        np.testing.assert_allclose(after, before, rtol=2e-6, atol=1e-30, err_msg=name)


NEAR_NEUTRAL: Final = {
    "Log": "r = Relu (x)\n a = Add (r, c)\n y = Log (a)",
    "Log of the reversed sum": "r = Relu (x)\n a = Add (c, r)\n y = Log (a)",
    "Reciprocal": "r = Relu (x)\n a = Sub (r, c)\n y = Reciprocal (a)",
    "product": "r = Mul (x, c)\n y = Sub (r, x)",
    "quotient": "r = Div (x, c)\n y = Sub (r, x)",
}


@pytest.mark.parametrize("text", NEAR_NEUTRAL.values(), ids=list(NEAR_NEUTRAL))
def test_a_constant_close_to_a_neutral_one_is_kept(text: str, tmp_path: Any) -> None:
    for constant in (1e-10, 1 + 2e-7):
        model = made(f"{ONE_INPUT} {{ {text} }}", c=np.float32(constant))
        assert_equal_results(model, VALUES, tmp_path, ["rewrite_rules", "onnxscript_optimize", "simplify"])


CHAINS: Final = {
    "Clip Clip": "r = Clip (x, a, b)\n y = Clip (r, c, d)",
    "Relu Clip": "r = Relu (x)\n y = Clip (r, a, b)",
    "Clip Relu": "r = Clip (x, a, b)\n y = Relu (r)",
    "Min Max": "r = Max (x, a)\n y = Min (r, b)",
    "Max Min": "r = Min (x, a)\n y = Max (r, b)",
    "Add Sub": "r = Add (x, a)\n y = Sub (r, b)",
    "Mul Div": "r = Mul (x, a)\n y = Div (r, b)",
    "Add Log": "r = Abs (x)\n s = Add (r, d)\n y = Log (s)",
    "Pow": "y = Pow (x, b)",
}
CONSTANTS: Final = (0.0, 1.0, -1.0, 1e-10, 1e-30, 1 + 1e-6, 1 - 1e-7, 2.0, 3.0, 1e30, -2.0)


@given(st.sampled_from(sorted(CHAINS)), st.tuples(*[st.sampled_from(CONSTANTS)] * 4), st.sampled_from(sorted(PASSES)))
@settings(max_examples=60)
def test_results_stay_equal_with_any_constants(
    tmp_path_factory: Any, chain: str, constants: tuple[float, float, float, float], name: str
) -> None:
    values = dict(zip("abcd", np.array(constants, np.float32), strict=True))
    used = {key: value for key, value in values.items() if f"{key})" in CHAINS[chain] or f"{key}," in CHAINS[chain]}
    with np.errstate(all="ignore"):
        model = made(f"{ONE_INPUT} {{ {CHAINS[chain]} }}", **used)
        assert_equal_results(model, VALUES, tmp_path_factory.getbasetemp(), [name])


def test_clips_whose_intervals_do_not_overlap_are_kept(tmp_path: Any) -> None:
    bounds = {name: np.float32(value) for name, value in zip("abcd", (0, 1, 2, 3), strict=True)}
    assert_equal_results(made(f"{ONE_INPUT} {{ {CHAINS['Clip Clip']} }}", **bounds), VALUES, tmp_path)
    below = {"a": np.float32(-3), "b": np.float32(-1)}
    assert_equal_results(made(f"{ONE_INPUT} {{ {CHAINS['Clip Relu']} }}", **below), VALUES, tmp_path)


def test_a_bound_that_is_no_number_keeps_both_clips(tmp_path: Any) -> None:
    bounds = {name: np.float32(value) for name, value in zip("abcd", (np.nan, 1, 0.5, np.inf), strict=True)}
    assert_equal_results(made(f"{ONE_INPUT} {{ {CHAINS['Clip Clip']} }}", **bounds), VALUES, tmp_path)
    lower = made(f"{ONE_INPUT} {{ r = Clip (x, a)\n y = Clip (r, b) }}", a=np.float32(1), b=np.float32(np.nan))
    assert_equal_results(lower, VALUES, tmp_path, ["rewrite_rules", "onnxscript_optimize"])


def test_clips_behind_an_unknown_type_stay() -> None:
    """onnx infers no types behind operators of other domains."""
    text = "g (float[4] x) => (float[4] y) { h = own.Op (x)\n r = Clip (h, low)\n y = Clip (r, high) }"
    model = made(text, domains=', "own": 1', low=np.float32(0), high=np.float32(1))
    model.graph.node[0].domain = "own"
    for name in ("rewrite_rules", "onnxscript_optimize"):
        assert [node.op_type for node in PASSES[name](model).graph.node] == ["Op", "Clip", "Clip"]


@pytest.mark.parametrize(
    "text",
    [
        "r = Clip <min = -1.0, max = 2.0> (x)\n y = Relu (r)",
        "r = Relu (x)\n y = Clip <min = -1.0, max = 2.0> (r)",
        "r = Clip <max = 2.0> (x)\n y = Clip <min = 0.5> (r)",
        "r = Min (x, two)\n y = Max (r, one)",
        "r = Max (x, one)\n y = Min (r, two)",
    ],
)
def test_bounds_that_are_attributes_stay(text: str, tmp_path: Any) -> None:
    """Before version 11, Clip has no inputs for them."""
    weights = {name: np.float32([value]) for name, value in (("one", 1), ("two", 2)) if name in text}
    assert_equal_results(made(f"{ONE_INPUT} {{ {text} }}", opset=10, **weights), VALUES, tmp_path)


def test_a_bound_that_adds_a_dimension_keeps_it(tmp_path: Any) -> None:
    text = f"g (float[N] x) => (float[1, N] y) {{ {CHAINS['Min Max']} }}"
    assert_equal_results(made(text, a=np.array([[0]], np.float32), b=np.float32(1)), VALUES, tmp_path)


def test_updates_that_are_added_are_no_replacement(tmp_path: Any) -> None:
    model = made(
        'g (float[3] x) => (float[3] y) { y = ScatterND <reduction = "add"> (x, i, u) }',
        i=np.array([[0], [1], [2]]),
        u=np.ones(3, np.float32),
    )
    assert_equal_results(model, VALUES[:3], tmp_path)


def test_a_reshape_that_copies_a_dimension_is_kept(tmp_path: Any) -> None:
    model = made(
        "g (float[2, 6] x) => (float[A, B] y) { r = Reshape (x, s)\n y = Reshape (r, t) }",
        s=np.array([3, 4]),
        t=np.array([0, -1]),
    )
    assert_equal_results(model, VALUES.reshape(2, 6), tmp_path)


def test_a_product_that_is_broadcast_does_not_become_a_gemm(tmp_path: Any) -> None:
    model = made(
        "g (float[1, 4] x) => (float[2, 3] y) { h = MatMul (x, w)\n y = Add (h, b) }",
        w=np.ones((4, 3), np.float32),
        b=np.arange(6, dtype=np.float32).reshape(2, 3),
    )
    after = MatMulAddGemm(direction="gemm")(model)
    x = VALUES[:4].reshape(1, 4)
    np.testing.assert_array_equal(outputs_of(after, x, tmp_path), outputs_of(model, x, tmp_path))


@pytest.mark.parametrize("transposed", [0, 1])
def test_fusion_keeps_the_transposition_of_square_weights(transposed: int, tmp_path: Any) -> None:
    """PyTorch exports a linear layer over three dimensions as Gemm with transposed weights between reshapes."""
    random = np.random.default_rng(0)
    text = (
        "g (float[3,5,4] x) => (float[3,5,4] y) { r = Reshape (x, flat)"
        f" m = Gemm <alpha = 1.0, beta = 1.0, transB = {transposed}> (r, w, b) h = Reshape (m, whole)"
        " q = Div (h, root) e = Erf (q) p = Add (e, one) t = Mul (h, p) y = Mul (t, half) }"
    )
    model = made(
        text,
        flat=np.array([-1, 4]),
        whole=np.array([3, 5, 4]),
        w=random.normal(size=(4, 4)).astype(np.float32),
        b=random.normal(size=4).astype(np.float32),
        root=np.float32(2**0.5),
        one=np.float32(1),
        half=np.float32(0.5),
    )
    x = random.normal(size=(3, 5, 4)).astype(np.float32)
    fused = TransformerFusion(engine="onnxscript")(model)
    assert any("Gelu" in node.op_type for node in fused.graph.node)
    np.testing.assert_allclose(outputs_of(fused, x, tmp_path), outputs_of(model, x, tmp_path), rtol=1e-5, atol=1e-6)


def test_factors_of_different_ranks_get_no_transposed_batch(tmp_path: Any) -> None:
    """The attention at the end of SigLIP; onnxruntime refuses such a product only when it runs."""
    model = made(
        """g (float[3, 5, 4] x) => (float[5, 3, 5] y) {
        t = Transpose <perm = [1, 0, 2]> (x)\n w = Gather (x, first)
        v = Transpose <perm = [1, 0]> (w)\n y = MatMul (t, v) }""",
        first=np.array(0),
    )
    x = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
    fused = TransformerFusion(engine="onnxscript")(model)
    assert "FusedMatMul" in {node.op_type for node in fused.graph.node}
    np.testing.assert_allclose(outputs_of(fused, x, tmp_path), outputs_of(model, x, tmp_path), rtol=1e-5, atol=1e-6)


def test_gemm_keeps_a_bias_of_zeros_where_it_needs_one(tmp_path: Any) -> None:
    model = made(
        "g (float[1, 4] x) => (float[1, 3] y) { y = Gemm (x, w, b) }",
        opset=10,
        w=np.ones((4, 3), np.float32),
        b=np.zeros(3, np.float32),
    )
    assert_equal_results(model, VALUES[:4].reshape(1, 4), tmp_path)


@pytest.mark.parametrize("name", ["rewrite_rules", "materialize_reshape"])
def test_a_computed_shape_becomes_constant_before_reshape_had_allowzero(name: str, tmp_path: Any) -> None:
    model = made(
        "g (float[2, 6] x) => (float[2, 6] y) { r = Reshape (x, s)\n h = Shape (x)\n y = Reshape (r, h) }",
        opset=11,
        s=np.array([3, 4]),
    )
    after = {**PASSES, "materialize_reshape": MaterializeReshape()}[name](ShapeInference()(model))
    assert "Shape" not in {node.op_type for node in after.graph.node}
    x = VALUES.reshape(2, 6)
    np.testing.assert_array_equal(outputs_of(after, x, tmp_path), outputs_of(model, x, tmp_path))


def test_a_correction_whose_rules_the_library_has_no_more_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_rules, "_guard", lambda rule, guard: None)
    monkeypatch.setattr("onnxscript.rewriter.ort_fusions._core.ORT_PATTERN_REWRITE_RULES", [])
    with pytest.raises(AttributeError, match="no rule named withbatch"):
        exact_rules.make_rules_exact.__wrapped__()
