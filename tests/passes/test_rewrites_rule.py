"""The facts about values that guards rely on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from autoopt.passes.rewrites import rule
from autoopt.passes.rewrites.local_rewrites import RULES, build_rules


def value(array: np.ndarray | None = None, dtype: ir.DataType | None = None, shape: list | None = None) -> ir.Value:
    return ir.Value(
        name="v",
        type=None if dtype is None else ir.TensorType(dtype),
        shape=None if shape is None else ir.Shape(shape),
        const_value=None if array is None else ir.Tensor(array),
    )


def test_an_initializer_is_constant() -> None:
    assert rule.constant(value(np.asarray([1, 2]))).tolist() == [1, 2]  # type: ignore[union-attr]


def test_an_input_is_not_constant_even_with_a_default() -> None:
    overridable = value(np.asarray([1.0], np.float32))
    ir.Graph([overridable], [], nodes=[], initializers=[overridable], opset_imports={"": 17})
    assert rule.constant(overridable) is None
    assert rule.constant(None) is None


def test_the_output_of_a_constant_node_is_constant() -> None:
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.Tensor(np.asarray(3.0)))])
    assert rule.constant(node.outputs[0]) == 3.0
    other = ir.Node("", "Relu", [node.outputs[0]])
    assert rule.constant(other.outputs[0]) is None


@pytest.mark.parametrize(
    ("array", "number"),
    [
        (np.float32(2), 2.0),
        (np.asarray([3]), 3.0),
        (np.asarray([1, 2]), None),
        (np.asarray([[4]]), None),
        (np.asarray([True]), None),
    ],
)
def test_a_scalar_is_one_number(array: np.ndarray, number: float | None) -> None:
    assert rule.scalar(value(np.asarray(array))) == number


def test_types_and_shapes_are_known_or_none() -> None:
    open_batch = value(dtype=ir.DataType.FLOAT16, shape=["N", 3])
    assert rule.is_float(open_batch)
    assert not rule.is_float(value())
    assert not rule.is_float(value(dtype=ir.DataType.INT64))
    assert (rule.rank(open_batch), rule.rank(value())) == (2, None)
    assert [rule.static_dim(open_batch, axis) for axis in (0, 1, -1, 2)] == [None, 3, 3, None]
    assert rule.static_dim(value(), 0) is None


def test_tensors_take_the_type_of_a_value() -> None:
    assert rule.tensor_like(value(dtype=ir.DataType.FLOAT16), 0.5).dtype == ir.DataType.FLOAT16
    assert rule.int64_tensor([1, 2]).dtype == ir.DataType.INT64


def test_missing_attributes_have_a_default() -> None:
    node = ir.Node("", "TopK", [], [ir.AttrInt64("axis", 0)])
    assert (rule.attribute(node, "axis", -1), rule.attribute(node, "largest", 1)) == (0, 1)


def test_every_name_of_a_rule_loads_a_rule_of_its_own() -> None:
    rules = build_rules(RULES.values(), assume=frozenset(["unmasked_rows"]))
    assert len({type(item) for item in rules} | {id(item) for item in rules}) > len(RULES)
    assert len(rules) == len(RULES)
