"""Single clean-up steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops, outputs, saved, step
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.passes.cleanup.graph_cleanup import NameFix, RemoveUnused
from autoopt.passes.fusion.ort_graph import OrtGraphOptimization
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
