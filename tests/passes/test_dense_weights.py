"""Sparse weights, made dense for passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import outputs, saved, step
from micro_models import made
from onnx import helper, numpy_helper

from autoopt.model import io
from autoopt.passes.execution.current_model import CurrentModel

DENSE = np.array([[0, 2, 0], [0, 0, -3]], np.float32)
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def sparse(name: str, coordinates: bool) -> onnx.SparseTensorProto:
    """`DENSE`, with the place of each value as one number or as two."""
    places = np.argwhere(DENSE) if coordinates else np.flatnonzero(DENSE)
    values = numpy_helper.from_array(DENSE[DENSE != 0], name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(places.astype(np.int64), "places"), DENSE.shape)


def initializer(coordinates: bool) -> onnx.ModelProto:
    model = made("g (float[2, 3] x) => (float[2, 3] y) { i = Identity (x)\n y = Add (i, w) }")
    model.graph.sparse_initializer.append(sparse("w", coordinates))
    return model


def in_a_body(coordinates: bool) -> onnx.ModelProto:
    model = made(
        "g (float[2, 3] x) => (float[2, 3] y) { s = ReduceMax <keepdims = 0> (x)\n c = Cast <to = 9> (s)"
        " z = If (c) <then_branch = a () => (float[2, 3] p) { p = Add (x, w) },"
        " else_branch = b () => (float[2, 3] q) { q = Neg (x) }>\n y = Identity (z) }"
    )
    branch = next(node for node in model.graph.node if node.op_type == "If").attribute[0].g
    branch.sparse_initializer.append(sparse("w", coordinates))
    return model


def constant(coordinates: bool) -> onnx.ModelProto:
    model = made("g (float[2, 3] x) => (float[2, 3] y) { i = Identity (x)\n y = Add (i, w) }")
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse("", coordinates)))
    return model


MODELS = {"initializer": initializer, "in a body": in_a_body, "constant": constant}


@pytest.mark.parametrize("coordinates", [False, True])
@pytest.mark.parametrize("kind", list(MODELS))
def test_the_model_computes_the_same(tmp_path: Path, kind: str, coordinates: bool) -> None:
    model = CurrentModel(io.save(MODELS[kind](coordinates), tmp_path / "source")).model
    assert "sparse" not in str(model)
    np.testing.assert_array_equal(outputs(model, tmp_path, {"x": X})[0], X + DENSE)


@pytest.mark.parametrize("name", ["simplify", "onnxsim", "identity_elimination"])
@pytest.mark.parametrize("kind", list(MODELS))
def test_passes_get_dense_weights(tmp_path: Path, kind: str, name: str) -> None:
    result = step(tmp_path, MODELS[kind](coordinates=True), name)
    assert result["outcome"] == "ok", result["message"]
    np.testing.assert_array_equal(outputs(saved(result), tmp_path, {"x": X})[0], X + DENSE)


def test_dense_weights_alone_are_no_change(tmp_path: Path) -> None:
    assert step(tmp_path, initializer(coordinates=False), "tie_weights")["outcome"] == "unchanged"
