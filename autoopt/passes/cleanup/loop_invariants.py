"""Loop-invariant code motion: what is the same in every iteration of a Loop is computed once, in front of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, ir, ir_passes
from autoopt.model.random_nodes import is_random
from autoopt.model.tensors import bodies, names_of, walk_graphs
from autoopt.passes.base import Pass
from autoopt.passes.base.conversion import to_ir
from autoopt.passes.fusion.weight_folding import FUSION_CONFLICTS
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    constant_tensors,
    consumers,
    defined_names,
    is_standard,
    new_name,
    rename_inputs,
    replace_items,
    value_names,
    walk_nodes,
)
from autoopt.passes.onnx_tools.libraries import apply_ir_passes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TypeProto

BEFORE_CARRIED: Final = 2
"""Inputs of a Loop and of its body in front of the carried values: trip count or number of the iteration, condition."""


class LoopInvariantCodeMotion(Pass):
    """Computes once, in front of a Loop, what is the same in every iteration.

    Values that the body returns as they came, such as weights, are no longer carried from one iteration to the next,
    which copies them. The products of one row per iteration with the same weights become one product of all rows.
    Recurrent layers converted from Keras have both.
    """

    target_bound = False
    needs_ops = ("Loop",)
    conflicts = FUSION_CONFLICTS
    libraries = ("onnx", "onnx-ir")
    aliases = ("licm",)

    def run(self, model: ModelProto) -> ir.Model | None:
        names = value_names(model)
        matrices = {name for name, tensor in constant_tensors(model.graph).items() if len(tensor.dims) == 2}
        is_changed = False
        for graph in reversed(list(walk_graphs(model.graph))):  # inner loops first
            is_changed |= _move_out_of_loops(graph, names, matrices)
        if not is_changed:
            return None
        return apply_ir_passes(to_ir(model), ir_passes.IdentityEliminationPass(), ir_passes.RemoveUnusedNodesPass())


def _move_out_of_loops(graph: GraphProto, names: set[str], matrices: Collection[str]) -> bool:
    """Move what is invariant out of the loops of a graph; tell if there was anything."""
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type != "Loop" or not is_standard(node):
            nodes.append(node)
            continue
        loop = _Loop(node, names)
        loop.stop_carrying()
        loop.move_invariants()
        loop.move_products(matrices)
        nodes += [*loop.before, node, *loop.after]
    is_changed = len(nodes) > len(graph.node)
    replace_items(graph.node, nodes)
    return is_changed


@dataclass
class _Loop:
    """A Loop, with the nodes to put before and after it instead of into its body.

    `names`: those of all values of the model; bodies of different loops may use the same names.
    """

    node: NodeProto
    names: set[str]
    before: list[NodeProto] = field(default_factory=list)
    after: list[NodeProto] = field(default_factory=list)

    @property
    def body(self) -> GraphProto:
        return next(bodies(self.node))

    def stop_carrying(self) -> None:
        """Let the body read carried values that it never changes from outside."""
        body = self.body
        copies = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
        returned = [copies.get(value.name, value.name) for value in body.output]
        outer: dict[str, str] = {}
        for place in reversed(range(len(body.input) - BEFORE_CARRIED)):
            name = body.input[BEFORE_CARRIED + place].name
            if returned[1 + place] != name or returned.count(name) > 1:
                continue
            outer[name] = self.node.input[BEFORE_CARRIED + place]
            if self.node.output[place]:
                self.after.append(helper.make_node("Identity", [outer[name]], [self.node.output[place]]))
            del body.input[BEFORE_CARRIED + place]
            del self.node.input[BEFORE_CARRIED + place]
            del body.output[1 + place]
            del self.node.output[place]
        rename_inputs(walk_nodes(body), outer)

    def move_invariants(self) -> None:
        """Move nodes in front of the loop that read nothing of its body."""
        body = self.body
        inner = defined_names(body)
        returned = names_of(body.output)
        remaining: list[NodeProto] = []
        for node in body.node:
            is_movable = any(node.input) and not any(True for _ in bodies(node)) and not is_random(node)
            if not inner.isdisjoint(node.input) or not returned.isdisjoint(node.output) or not is_movable:
                remaining.append(node)
                continue
            outer = {name: new_name(f"{name}_of_loop", self.names) for name in node.output if name}
            node.output[:] = [outer.get(name, "") for name in node.output]
            self.before.append(node)
            inner.difference_update(outer)
            rename_inputs(walk_nodes(body), outer)
        replace_items(body.node, remaining)

    def move_products(self, matrices: Collection[str]) -> None:
        """Multiply all rows in front of the loop: `(x @ matrix)[i]` in place of `x[i] @ matrix`."""
        body = self.body
        removed: list[str] = []
        for rows, product in list(_products_of_rows(body)):
            if product.input[1] not in matrices:
                continue
            everything = new_name(f"{product.output[0]}_of_loop", self.names)
            self.before.append(helper.make_node("MatMul", [rows.input[0], product.input[1]], [everything]))
            removed.append(rows.output[0])
            rows.input[0] = everything
            rows.output[0] = product.output[0]
        replace_items(body.node, [node for node in body.node if not _is_product_of(node, removed)])


def _products_of_rows(body: GraphProto) -> Iterator[tuple[NodeProto, NodeProto]]:
    """Yield each Gather of one row of a value from outside, with the MatMul that alone reads the row."""
    inner = defined_names(body)
    reads = Counter(name for node in walk_nodes(body) for name in node.input)
    reads.update(value.name for value in body.output)
    readers = consumers(body)
    for node in _gathered_rows(body):
        row = node.output[0]
        if node.input[0] in inner or reads[row] != 1 or row not in readers:
            continue
        reader = readers[row][0]
        if _is_product_of(reader, [row]) and reader.input[1] not in inner:
            yield node, reader


def _gathered_rows(body: GraphProto) -> Iterator[NodeProto]:
    """Yield each Gather of one row, by an input of the body such as the number of the iteration."""
    numbers = {value.name for value in body.input if _is_number(value.type.tensor_type)}
    for node in body.node:
        if node.op_type == "Gather" and node.input[1] in numbers and not attribute_values(node).get("axis", 0):
            yield node


def _is_product_of(node: NodeProto, names: Collection[str]) -> bool:
    """Tell if a node is a MatMul with one of these values on its left."""
    return node.op_type == "MatMul" and is_standard(node) and node.input[0] in names


def _is_number(tensor_type: TypeProto.Tensor) -> bool:
    """Tell if a value has no dimensions."""
    return tensor_type.HasField("shape") and not tensor_type.shape.dim
