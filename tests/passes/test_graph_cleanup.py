"""Single clean-up steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import compare, ops, outputs, saved, step
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.passes.cleanup.graph_cleanup import MergeReshapes, NameFix, RemoveUnused
from autoopt.passes.fusion.ort_operators import OrtGraphOptimization
from autoopt.passes.onnx_tools.graphs import op_counts
from autoopt.passes.verification.equivalence import run_once
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def test_duplicate_node_names_are_repaired(tmp_path: Path) -> None:
    model = MODELS["double_names"]()
    assert step(tmp_path, model, "ort_graph_optimization")["outcome"] == "refused"
    assert "name_fix" in OrtGraphOptimization.requires
    fixed = NameFix()(model)
    assert len({node.name for node in fixed.graph.node}) == 2
    run_once(io.save(fixed, tmp_path / "fixed"), next(synthetic_feeds(fixed)))


def test_sparse_weights_are_not_lost() -> None:
    model = made("g (float[1, 4] x) => (float[1, 4] y) { y = MatMul (x, w) }")
    values = onnx.numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    places = onnx.numpy_helper.from_array(np.array([0, 5], np.int64), "places")
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [4, 4]))
    after = RemoveUnused()(model)
    assert [weight.name for weight in after.graph.initializer] == ["w"]
    assert onnx.numpy_helper.to_array(after.graph.initializer[0]).sum() == 3


def test_weights_that_come_twice_are_stored_once(tmp_path: Path) -> None:
    table = normal(96, 32)
    model = made(
        "g (int64[N] i) => (float[N, 96] y, float[N, 32] z, float[48, 64] r)"
        "{ e = Gather (t, i)\n y = MatMul (e, u)\n z = Gather (v, i)\n r = Neg (w) }",
        t=table,
        u=np.ascontiguousarray(table.T),
        v=table.copy(),
        w=table.reshape(48, 64),
    )
    tied = saved(step(tmp_path, model, "tie_weights"))
    assert [list(tensor.dims) for tensor in tied.graph.initializer] == [[96, 32], [2]]
    assert sorted(ops(tied)) == sorted([*ops(model), "Transpose", "Reshape"])
    feed = {"i": np.array([0, 95])}
    for before, after in zip(outputs(model, tmp_path, feed), outputs(tied, tmp_path, feed), strict=True):
        np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-5)
    assert step(tmp_path, tied, "tie_weights")["outcome"] == "unchanged"


def test_weights_that_differ_callers_override_or_are_small_stay(tmp_path: Path) -> None:
    square = normal(64, 64)
    model = made(
        "g (float[N, 64] x) => (float[N, 64] y) { h = MatMul (x, v)\n k = MatMul (h, w)\n y = Add (k, b) }",
        v=square,
        w=square + np.eye(64, dtype=np.float32),
        b=normal(64),
    )
    assert step(tmp_path, model, "tie_weights")["outcome"] == "unchanged"
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "w")
    weight.CopyFrom(onnx.numpy_helper.from_array(square, "w"))
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [64, 64]))
    assert step(tmp_path, model, "tie_weights")["outcome"] == "unchanged"
    model.graph.input.pop()
    assert step(tmp_path, model, "tie_weights", smallest=5000)["outcome"] == "unchanged"
    assert step(tmp_path, model, "tie_weights")["outcome"] == "ok"


IDENTITIES = {
    "a branch that returns an outer value": (
        """g (float[n, 4] x, bool c) => (float[n, 4] y) {
            x1 = Identity (x)\n u = Relu (x1)
            z = If (c) <
                then_branch = t () => (float[n, 4] a) { a = Neg (u) },
                else_branch = e () => (float[n, 4] b) { b0 = Identity (u)\n b = Identity (b0) }>
            y = Relu (z) }""",
        1,
    ),
    "both branches": (
        """g (float[n, 4] x, bool c) => (float[n, 4] y) {
            u = Relu (x)
            y = If (c) <
                then_branch = t () => (float[n, 4] a) { a = Identity (u) },
                else_branch = e () => (float[n, 4] b) { b = Identity (u) }> }""",
        2,
    ),
    "a loop that returns an outer value each time": (
        """g (float[4] x) => (float[4] y, float[k, 4] z) <int64 m = {3}> {
            u = Relu (x)
            y, z = Loop (m, , x) <body = b (int64 i, bool go, float[4] s) => (bool go2, float[4] s2, float[4] o) {
                go2 = Identity (go)\n s1 = Add (s, u)\n s2 = Identity (s1)\n o = Identity (u) }> }""",
        2,
    ),
    "two outputs of one value": (
        "g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) { u = Relu (x)\n y = Identity (u)\n z = Identity (u) }",
        1,
    ),
    "an input as output": ("g (float[n, 4] x) => (float[n, 4] y) { a = Identity (x)\n y = Identity (a) }", 1),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities_stay_where_an_output_needs_them(tmp_path: Path, name: str) -> None:
    text, kept = IDENTITIES[name]
    result = step(tmp_path, made(text), "identity_elimination")
    assert result["outcome"] == ("ok" if kept < text.count("Identity") else "unchanged"), result["message"]
    if result["outcome"] == "ok":
        assert result["equivalence"]["status"] == "same"
        assert op_counts(saved(result))["Identity"] == kept


def test_recorded_shapes_that_contradict_each_other_are_no_obstacle(tmp_path: Path) -> None:
    model = made("g (float[n, 4] x) => (float[n, 4] y) { u = Relu (x)\n v = Identity (u)\n y = Neg (v) }")
    for name, sizes in (("u", [2, 4]), ("v", [2, 4, 1])):
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, sizes))
    assert step(tmp_path, model, "identity_elimination")["outcome"] == "ok"


AXES = {"first": np.array([0]), "last": np.array([-1]), "second": np.array([1]), "flat": np.array([-1])}


def _model(body: str, shape: str = "2, 1, 3", outputs: str = "float[] y") -> onnx.ModelProto:
    model = made(f"g (float[{shape}] x) => ({outputs}) {{ {body} }}", **AXES)
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize(
    ("body", "shape", "remaining"),
    [
        ("a = Relu (x)\n b = Squeeze (a, second)\n y = Unsqueeze (b, first)", "2, 1, 3", ["Relu", "Reshape"]),
        ("a = Relu (x)\n b = Squeeze (a, second)\n y = Unsqueeze (b, first)", "N, 1, 3", ["Relu", "Reshape"]),
        ("b = Squeeze (x, second)\n c = Unsqueeze (b, second)\n y = Relu (c)", "N, 1, 3", ["Relu"]),
        ("b = Squeeze (x, second)\n y = Unsqueeze (b, second)", "N, 1, 3", ["Reshape"]),
        ("b = Transpose <perm = [1, 0, 2]> (x)\n c = Flatten (b)\n y = Relu (c)", "2, 1, 3", ["Reshape", "Relu"]),
        ("y = Transpose <perm = [0, 2, 1]> (x)", "2, 1, 3", ["Reshape"]),
        ("b = Squeeze (x, second)\n y = Unsqueeze (b, first)\n d = Relu (y)", "2, 1, 3", ["Reshape", "Relu"]),
    ],
)
def test_views_in_a_row_become_one(tmp_path: Path, body: str, shape: str, remaining: list[str]) -> None:
    model = _model(body, shape)
    after = MergeReshapes()(model)
    assert ops(after) == remaining
    assert compare(model, after, tmp_path, {"x": np.arange(6, dtype=np.float32).reshape(2, 1, 3)}).status == "same"


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("y = Squeeze (x, second)", "2, 1, 3"),
        ("b = Transpose <perm = [0, 2, 1]> (x)\n y = Squeeze (b, first)", "1, 2, 3"),
        ("y = Transpose <perm = [1, 0, 2]> (x)", "A, B, 3"),
        ("b = Squeeze (x, second)\n y = Unsqueeze (b, first)", "A, 1, B"),
        ("b = Relu (x)\n y = Transpose (b)", "2, 1, 3"),
        ("b = Squeeze (x, second)\n c = Unsqueeze (b, first)\n d = Unsqueeze (b, second)\n y = Add (c, d)", "2, 1, 3"),
    ],
)
def test_other_views_stay(body: str, shape: str) -> None:
    model = _model(body, shape)
    assert MergeReshapes()(model) is model


def test_values_that_outputs_and_bodies_read_stay() -> None:
    model = _model(
        "b = Squeeze (x, second)\n c = Unsqueeze (b, first)\n d = Unsqueeze (c, first)\n "
        "s = ReduceMax <keepdims = 0> (x)\n k = Cast <to = 9> (s)\n "
        "y = If (k) <then_branch = t () => (float[] p) { p = Identity (c) }, "
        "else_branch = e () => (float[] q) { q = Relu (c) }>",
        outputs="float[] y, float[] b, float[] d",
    )
    assert MergeReshapes()(model) is model
