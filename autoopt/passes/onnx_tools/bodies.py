"""Weights in the bodies of If, Loop and Scan, brought to where libraries look for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import ir, ir_passes
from autoopt.model.tensors import walk_graphs
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.gemm import is_weight
from autoopt.passes.onnx_tools.graphs import constant_names, has_subgraphs, new_name
from autoopt.passes.onnx_tools.values import taken_names

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def lift_constants(model: ModelProto) -> ModelProto:
    """Store Constant nodes as weights, where quantizers look for them, in bodies too; returns the model.

    A model without bodies whose Constant nodes hold no matrix is returned as is.
    """
    constants = [node.attribute for node in model.graph.node if node.op_type == "Constant"]
    if not has_subgraphs(model) and not any(len(each.t.dims) > 1 for attributes in constants for each in attributes):
        return model
    lift = ir_passes.LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=1)
    return to_proto(lift(to_ir(model)).model)


def copy_weights_into_bodies(model: ir.Model, op_types: Collection[str]) -> None:
    """Give bodies weights of their own for nodes of these types, in place of weights of the main graph."""
    taken = taken_names(model)
    for body in model.graph.subgraphs():
        for node in body:
            for place, value in enumerate(node.inputs if node.op_type in op_types else ()):
                if value is None or not is_weight(value) or value.graph is not model.graph:
                    continue
                copy = ir.Value(name=new_name(f"{value.name}_copy", taken), const_value=value.const_value)
                body.register_initializer(copy)
                node.replace_input_with(place, copy)
                if not value.uses():
                    model.graph.initializers.pop(str(value.name), None)


def weighted_nodes(model: ModelProto, op_types: Collection[str]) -> Iterator[NodeProto]:
    """Iterate over nodes of these types that read a fixed value, in bodies too."""
    outer = constant_names(model.graph)
    for graph in walk_graphs(model.graph):
        fixed = outer | constant_names(graph)
        for node in graph.node:
            if node.op_type in op_types and fixed.intersection(node.input):
                yield node
