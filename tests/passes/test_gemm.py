"""Gemm as MatMul and Add."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import ops, outputs
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import branches_of_outer_weights, made, normal

from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools import gemm as products

ROWS, INNER, COLUMNS = 3, 4, 5


def split_gemms(model: onnx.ModelProto, excluded: Collection[str] = ()) -> int:
    """Split the products of a protobuf, in place."""
    converted = to_ir(model)
    count = products.split_gemms(converted, excluded)
    model.CopyFrom(to_proto(converted))
    return count


SCALES = st.sampled_from([1.0, 0.5, -2.0])


def gemm(attributes: str, right: np.ndarray, left: tuple[int, int] = (ROWS, INNER), bias: str = "") -> onnx.ModelProto:
    """A Gemm of the input `x` and the weight `w`. `bias`: "fixed", "input", or none."""
    weights = {"w": right}
    inputs, arguments = f"float[{left[0]}, {left[1]}] x", "x, w"
    if bias:
        arguments += ", c"
    if bias == "input":
        inputs += f", float[{COLUMNS}] c"
    elif bias == "fixed":
        weights["c"] = normal(COLUMNS, seed=2)
    return made(f"g ({inputs}) => (float[{ROWS}, {COLUMNS}] y) {{ y = Gemm {attributes} ({arguments}) }}", **weights)


def feeds(model: onnx.ModelProto) -> dict[str, Any]:
    """Numbers for the inputs of a model."""
    arrays = {}
    for number, value in enumerate(model.graph.input):
        shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        arrays[value.name] = normal(*shape, seed=number + 5)
    return arrays


@settings(max_examples=30)
@given(st.booleans(), st.booleans(), SCALES, SCALES, st.sampled_from(["", "fixed", "input"]))
def test_products_and_sums_equal_the_gemm(
    tmp_path: Path, left: bool, right: bool, alpha: float, beta: float, bias: str
) -> None:
    attributes = f"<transA = {int(left)}, transB = {int(right)}, alpha = {alpha}, beta = {beta}>"
    weight = normal(COLUMNS, INNER) if right else normal(INNER, COLUMNS)
    model = gemm(attributes, weight, (INNER, ROWS) if left else (ROWS, INNER), bias)
    feed = feeds(model)
    (expected,) = outputs(model, tmp_path, feed)
    assert split_gemms(model) == 1
    onnx.checker.check_model(model, full_check=True)
    assert "Gemm" not in ops(model)
    assert ops(model).count("Transpose") == left
    np.testing.assert_allclose(outputs(model, tmp_path, feed)[0], expected, rtol=1e-5, atol=1e-5)


def test_a_plain_gemm_keeps_its_weight_and_its_name() -> None:
    model = gemm("", normal(INNER, COLUMNS), bias="fixed")
    model.graph.node[0].name = "head"
    before = [tensor.SerializeToString() for tensor in model.graph.initializer]
    assert split_gemms(model) == 1
    assert [node.name for node in model.graph.node] == ["head", "head_Add"]
    assert [tensor.SerializeToString() for tensor in model.graph.initializer] == before


def test_gemms_that_share_a_weight_share_its_transpose() -> None:
    model = made(
        "g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z)"
        "{ a = Gemm <transB = 1> (x, w)\n y = Relu (a)\n z = Gemm <transB = 1> (y, w) }",
        w=normal(4, 4),
    )
    assert split_gemms(model) == 2
    assert [tensor.name for tensor in model.graph.initializer] == ["w_right"]
    assert {node.input[1] for node in model.graph.node if node.op_type == "MatMul"} == {"w_right"}


def test_a_weight_that_others_read_stays() -> None:
    model = made(
        "g (float[2, 4] x) => (float[2, 4] y, float[4, 4] z) { y = Gemm <transB = 1> (x, w)\n z = Neg (w) }",
        w=normal(4, 4),
    )
    assert split_gemms(model) == 1
    assert {tensor.name for tensor in model.graph.initializer} == {"w", "w_right"}


@pytest.mark.parametrize(
    ("inputs", "weights"),
    [("float[2, 4] x, float[4, 4] w", {}), ("float[2, 4] x, float[4, 4] w", {"w": normal(4, 4)})],
    ids=["computed", "a default that callers may replace"],
)
def test_a_gemm_stays_whose_weight_is_not_fixed(inputs: str, weights: dict[str, Any]) -> None:
    model = made(f"g ({inputs}) => (float[2, 4] y) {{ y = Gemm (x, w) }}", **weights)
    assert split_gemms(model) == 0
    assert ops(model) == ["Gemm"]


def test_excluded_gemms_stay() -> None:
    model = made("g (float[2, 4] x) => (float[2, 4] y) { a = Gemm (x, w)\n y = Gemm (a, w) }", w=normal(4, 4))
    for name, node in zip(("first", "second"), model.graph.node, strict=True):
        node.name = name
    assert split_gemms(model, {"first"}) == 1
    assert ops(model) == ["Gemm", "MatMul"]


@pytest.mark.parametrize("flag", [True, False])
def test_gemms_in_bodies_read_the_weights_of_the_main_graph(tmp_path: Path, flag: bool) -> None:
    model = branches_of_outer_weights()
    feed = {"x": normal(2, 16, seed=3), "flag": np.array(flag)}
    (expected,) = outputs(model, tmp_path, feed)
    assert split_gemms(model) == 1
    onnx.checker.check_model(model, full_check=True)
    (branch,) = (a.g for a in model.graph.node[0].attribute if a.name == "then_branch")
    assert [node.op_type for node in branch.node] == ["MatMul", "Add"]
    np.testing.assert_allclose(outputs(model, tmp_path, feed)[0], expected, rtol=1e-5, atol=1e-6)
