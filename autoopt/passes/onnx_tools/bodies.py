"""Weights in the bodies of If, Loop and Scan, brought to where libraries look for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import ir_passes
from autoopt.model.tensors import by_name, walk_graphs
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.graphs import (
    constant_names,
    defined_names,
    has_subgraphs,
    new_name,
    read_names,
    value_names,
)

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto


def lift_constants(model: ModelProto) -> ModelProto:
    """Store Constant nodes as weights, where quantizers look for them, in bodies too; returns the model.

    A model without bodies whose Constant nodes hold no matrix is returned as is.
    """
    constants = [node.attribute for node in model.graph.node if node.op_type == "Constant"]
    if not has_subgraphs(model) and not any(len(each.t.dims) > 1 for attributes in constants for each in attributes):
        return model
    lift = ir_passes.LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=1)
    return to_proto(lift(to_ir(model)).model)


def copy_weights_into_bodies(model: ModelProto, op_types: Collection[str]) -> None:
    """Give bodies weights of their own for nodes of these types, in place of weights of the main graph."""
    weights = by_name(model.graph.initializer)
    names = value_names(model)
    replaced: set[str] = set()
    for body in _bodies(model):
        for node in body.node:
            if node.op_type in op_types:
                replaced |= _copy_weights(node, body, weights, names)
    for name in replaced - read_names(model.graph):
        model.graph.initializer.remove(weights[name])


def weighted_nodes(model: ModelProto, op_types: Collection[str]) -> Iterator[NodeProto]:
    """Iterate over nodes of these types that read a fixed value, in bodies too."""
    outer = constant_names(model.graph)
    for graph in walk_graphs(model.graph):
        fixed = outer | constant_names(graph)
        for node in graph.node:
            if node.op_type in op_types and fixed.intersection(node.input):
                yield node


def _bodies(model: ModelProto) -> Iterator[GraphProto]:
    bodies = walk_graphs(model.graph)
    next(bodies)
    yield from bodies


def _copy_weights(node: NodeProto, body: GraphProto, weights: Mapping[str, TensorProto], names: set[str]) -> set[str]:
    """Let the node read copies of the `weights` that it reads; return the names of those."""
    defined = defined_names(body)
    copied: set[str] = set()
    for index, name in enumerate(node.input):
        if name not in weights or name in defined:
            continue
        copy = deepcopy(weights[name])
        copy.name = new_name(f"{name}_copy", names)
        body.initializer.append(copy)
        node.input[index] = copy.name
        copied.add(name)
    return copied
