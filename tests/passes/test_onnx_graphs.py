"""Walking and editing graphs."""

from __future__ import annotations

import math
import random
from collections import Counter
from copy import deepcopy

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import MODELS, made, normal
from onnx import helper

from autoopt.passes.onnx_tools import graphs

CHAIN = "g (float[2] x) => (float[2] y) { a = Relu (x)\n b = Neg (a)\n y = Relu (b) }"


def test_graphs_inside_nodes_are_walked() -> None:
    model = MODELS["branches"]()
    assert {node.op_type for node in graphs.walk_nodes(model.graph)} == {"If", "MatMul", "Neg"}
    assert graphs.has_subgraphs(model)
    assert not graphs.has_subgraphs(MODELS["mlp"]())


def test_operators_are_counted_by_domain() -> None:
    model = made(CHAIN)
    model.graph.node[0].domain = "ai.onnx"
    model.graph.node[1].domain = "com.microsoft"
    assert graphs.op_counts(model) == Counter({"Relu": 2, "com.microsoft::Neg": 1})


@pytest.mark.parametrize(("op", "more"), [("Relu", False), ("Neg", True), ("Conv", False)])
def test_more_operators_of_a_type_count_in_any_domain(op: str, more: bool) -> None:
    model = made(CHAIN)
    model.graph.node[1].domain = "com.microsoft"
    assert graphs.has_more_of([op], Counter({"Relu": 2}), model) is more


def test_weights_and_constants_are_told_from_inputs() -> None:
    model = made("g (float[2] x, float[2] w) => (float[2] y) { c = Constant <value = float {1}> ()\n y = Add (x, w) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    assert graphs.weight_names(model) == {"w"}
    assert graphs.constant_names(model.graph) == {"w", "c"}
    assert [value.name for value in graphs.caller_inputs(model)] == ["x"]


def test_values_are_renamed_where_they_are_read_and_written() -> None:
    model = made(CHAIN)
    graphs.rename_inputs(model.graph.node, {"a": "z"})
    assert [list(node.input) for node in model.graph.node] == [["x"], ["z"], ["b"]]
    graphs.rename_value(model.graph, "b", "c")
    assert model.graph.node[1].output == ["c"]
    assert model.graph.node[2].input == ["c"]


@given(st.lists(st.sampled_from(["", "a", "b", "Relu_0", "Relu_1"]), min_size=1, max_size=8))
@settings(max_examples=40)
def test_node_names_become_unique_and_unique_ones_stay(names: list[str]) -> None:
    nodes = [helper.make_node("Relu", ["x"], [f"y{i}"], name=name) for i, name in enumerate(names)]
    graph = helper.make_graph(nodes, "g", [], [])
    model = helper.make_model(graph)
    graphs.name_nodes(model)
    result = [node.name for node in model.graph.node]
    assert len(set(result)) == len(names)
    assert all(result)
    for old, new in zip(names, result, strict=True):
        if old and names.count(old) == 1:
            assert new == old


def test_weights_leave_the_inputs_and_the_ir_version_allows_it() -> None:
    model = MODELS["weights_as_inputs"]()
    model.ir_version = 3
    graphs.remove_weights_from_inputs(model)
    assert not graphs.weight_names(model) & {value.name for value in model.graph.input}
    assert model.ir_version == 4


def test_recorded_types_of_weights_are_dropped() -> None:
    model = made("g (float[2, 4] x) => (float[2, 2] y) { y = MatMul (x, w) }", w=normal(4, 2))
    for name in ("w", "other"):
        model.graph.value_info.append(helper.make_tensor_value_info(name, 1, [4, 2]))
    graphs.drop_weight_types(model)
    assert [value.name for value in model.graph.value_info] == ["other"]


def test_metadata_is_dropped_by_key() -> None:
    model = made(CHAIN)
    for key in ("a", "b", "c"):
        model.metadata_props.add(key=key, value="v")
    assert [entry.key for entry in graphs.drop_metadata(model, "a", "c").metadata_props] == ["b"]


@given(st.randoms(use_true_random=False), st.integers(2, 8))
@settings(max_examples=20)
def test_nodes_are_sorted_into_a_valid_order(shuffler: random.Random, count: int) -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(count)]
    inputs = [helper.make_tensor_value_info("v0", 1, [2])]
    outputs = [helper.make_tensor_value_info(f"v{count}", 1, [2])]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), ir_version=8)
    assert graphs.sort_nodes(model) is model
    shuffled = deepcopy(model)
    order = list(nodes)
    shuffler.shuffle(order)
    graphs.replace_items(shuffled.graph.node, order)
    assert graphs.is_sorted(shuffled.graph) == (order == nodes)
    assert [node.name for node in graphs.sort_nodes(shuffled).graph.node] == [node.name for node in nodes]


def test_values_are_read_by_nodes_and_by_those_who_take_the_outputs() -> None:
    branches = "then_branch = g () => (float y) { y = Identity (w) }, else_branch = h () => (float v) { v = Abs (u) }"
    text = f"t (bool c, float x) => (float z, float x) {{ z = If (c) <{branches}> }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert graphs.read_names(model.graph) == {"c", "w", "u", "x", "y", "z", "v"}


def test_a_name_in_use_gets_underscores() -> None:
    names = {"a", "a_", "b"}
    assert graphs.new_name("a", names) == "a__"
    assert "a__" in names


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("value_float", 2.5, 2.5),
        ("value_floats", [1.0, 2.0], [1.0, 2.0]),
        ("value_int", 3, 3),
        ("value_ints", [4], [4]),
    ],
)
def test_constant_numbers_are_stored_as_tensors(attribute: str, value: object, expected: object) -> None:
    node = helper.make_node("Constant", [], ["c"], **{attribute: value})
    graphs.store_as_tensor(node, graphs.NUMBER_ATTRIBUTES)
    (stored,) = node.attribute
    assert stored.name == "value"
    assert onnx.numpy_helper.to_array(stored.t).tolist() == expected


def test_other_constants_stay() -> None:
    node = helper.make_node("Constant", [], ["c"], value_int=3)
    graphs.store_as_tensor(node, graphs.FLOAT_ATTRIBUTES)
    assert node.attribute[0].name == "value_int"


def test_models_near_the_limit_of_protobuf_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["mlp"]()
    assert not graphs.is_large(model)
    monkeypatch.setattr(graphs, "EXTERNAL_DATA_BYTES", 4 * sum(map(_elements, model.graph.initializer)) - 1)
    assert graphs.is_large(model)


def test_a_value_that_only_a_body_reads_comes_before_the_node_of_the_body() -> None:
    model = made(
        """g (float[2] x, bool c) => (float[2] y)
        { y = If (c) <then_branch = a () => (float[2] p) { p = Neg (h) }, else_branch = b () => (float[2] q)
            { q = Relu (x) }>\n h = Abs (x) }"""
    )
    assert not graphs.is_sorted(model.graph)
    assert [node.op_type for node in graphs.sort_nodes(model).graph.node] == ["Abs", "If"]


def _elements(tensor: onnx.TensorProto) -> int:
    assert tensor.data_type == onnx.TensorProto.FLOAT
    return math.prod(tensor.dims)
