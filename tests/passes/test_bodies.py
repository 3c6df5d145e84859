"""Weights in bodies."""

from __future__ import annotations

from micro_models import MODELS, branches_of_outer_weights, made, recurrent_branches

from autoopt.model.tensors import walk_graphs
from autoopt.passes.onnx_tools import bodies


def test_constants_of_bodies_become_weights_of_the_body() -> None:
    model = made(
        """g (float[2] x, bool c) => (float[2] y)
        { y = If (c) <then_branch = a () => (float[2] p) { k = Constant <value = float[2] {1.0, 2.0}> ()\n
            p = Add (x, k) }, else_branch = b () => (float[2] q) { q = Relu (x) }> }"""
    )
    _, *inner = walk_graphs(bodies.lift_constants(model).graph)
    assert {tensor.name for body in inner for tensor in body.initializer} == {"k"}
    plain = MODELS["relu_only"]()
    assert bodies.lift_constants(plain) is plain


def test_each_body_gets_weights_of_its_own() -> None:
    model = recurrent_branches()
    bodies.copy_weights_into_bodies(model, ["LSTM"])
    main, *inner = walk_graphs(model.graph)
    assert not main.initializer
    names = [tensor.name for body in inner for tensor in body.initializer]
    assert len(set(names)) == len(names) == 4


def test_weighted_nodes_are_found_in_bodies() -> None:
    model = branches_of_outer_weights()
    assert [node.op_type for node in bodies.weighted_nodes(model, {"Gemm", "MatMul"})] == ["Gemm", "MatMul"]
    assert not list(bodies.weighted_nodes(model, {"If"}))
