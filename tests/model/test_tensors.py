"""Walking a model: graphs, nodes and tensors, wherever they are nested."""

from __future__ import annotations

import builders
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoopt.model.tensors import graphs, nodes, tensors


def constant(name: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.ones(2, np.float32), name))


def body(name: str, *inner: onnx.NodeProto) -> onnx.GraphProto:
    output = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [2])
    return helper.make_graph([constant(f"{name}_value"), *inner], name, [], [output])


@pytest.fixture
def nested() -> onnx.ModelProto:
    """A model with an `If` within a branch of an `If`, and a function with a body."""
    inner = helper.make_node("If", ["c"], ["i"], then_branch=body("inner_then"), else_branch=body("inner_else"))
    outer = helper.make_node("If", ["c"], ["y"], then_branch=body("then", inner), else_branch=body("else"))
    model = builders.model([outer], [], [builders.tensor("y", [2])], {"w": np.zeros(3, np.float32)})
    loop = helper.make_node("If", ["c"], ["z"], then_branch=body("function_then"), else_branch=body("function_else"))
    function = helper.make_function("mine", "Twice", ["c"], ["z"], [loop], [helper.make_opsetid("", 17)])
    model.functions.append(function)
    return model


def test_bodies_of_nodes_are_graphs(nested: onnx.ModelProto) -> None:
    names = [graph.name for graph in graphs(nested)]
    assert names[0] == nested.graph.name
    assert set(names[1:]) == {
        "then", "inner_then", "inner_else", "else", "function_then", "function_else",
    }  # fmt: skip


def test_training_graphs_are_graphs(nested: onnx.ModelProto) -> None:
    training = nested.training_info.add()
    training.initialization.CopyFrom(body("initialization"))
    training.algorithm.CopyFrom(body("algorithm"))
    assert {"initialization", "algorithm"} <= {graph.name for graph in graphs(nested)}


def test_nodes_of_functions_are_nodes(nested: onnx.ModelProto) -> None:
    ops = [node.op_type for node in nodes(nested)]
    assert ops.count("If") == 3
    assert ops.count("Constant") == 6


def test_initializers_and_attributes_hold_tensors(nested: onnx.ModelProto) -> None:
    names = {tensor.name for tensor in tensors(nested)}
    assert names == {"w"} | {
        f"{graph}_value" for graph in ("then", "inner_then", "inner_else", "else", "function_then", "function_else")
    }


def test_sparse_tensors_are_two_tensors(nested: onnx.ModelProto) -> None:
    before = len(list(tensors(nested)))
    values = numpy_helper.from_array(np.ones(1, np.float32), "values")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "indices")
    sparse = helper.make_sparse_tensor(values, indices, [4])
    nested.graph.sparse_initializer.append(sparse)
    nested.graph.node.append(helper.make_node("Constant", [], ["s"], sparse_value=sparse))
    assert len(list(tensors(nested))) == before + 4


def test_default_attributes_of_functions_hold_tensors(nested: onnx.ModelProto) -> None:
    value = numpy_helper.from_array(np.ones(1, np.float32), "default")
    nested.functions[0].attribute_proto.append(helper.make_attribute("value", value))
    assert "default" in {tensor.name for tensor in tensors(nested)}
