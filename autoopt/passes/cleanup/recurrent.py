"""Initial states of recurrent layers that are zero anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import numpy_helper
from autoopt.model.tensors import names_of, walk_graphs
from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.base.conversion import to_ir
from autoopt.passes.onnx_tools.graphs import constant_tensors, is_standard, producers
from autoopt.passes.onnx_tools.libraries import apply_ir_passes

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnx import GraphProto, ModelProto, NodeProto

STATES: Final = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""Recurrent layer -> the places of its initial states among its inputs."""
KEEP_ZEROS: Final = frozenset(
    ("Cast", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze")
)
"""Operators that return only values of their first input, or as many of them."""


class OmitZeroStates(Pass):
    """Leaves out initial states of recurrent layers that are zero, and the nodes that compute how many zeros there are.

    Exporters of Keras and PyTorch write the zeros in the shape of the batch, with up to ten nodes for each layer. Small
    models take much of their time for them.
    """

    target_bound = False
    needs_ops = tuple(STATES)
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    def run(self, model: ModelProto) -> ir.Model | None:
        from onnx_ir.passes import common

        changed = [_omit_zero_states(graph) for graph in walk_graphs(model.graph)]
        if not any(changed):
            return None
        return apply_ir_passes(to_ir(model), common.RemoveUnusedNodesPass())


def _omit_zero_states(graph: GraphProto) -> bool:
    """Leave out the zeros of the recurrent layers of a graph, in place; tell if there were any."""
    zeros = _Zeros(graph)
    is_changed = False
    for node in graph.node:
        places = STATES.get(node.op_type, ()) if is_standard(node) else ()
        omitted = [place for place in places if place < len(node.input) and zeros.has(node.input[place])]
        for place in omitted:
            node.input[place] = ""
        while omitted and not node.input[-1]:
            node.input.pop()
        is_changed |= bool(omitted)
    return is_changed


class _Zeros:
    """Values of a graph that are zero whatever the inputs are."""

    def __init__(self, graph: GraphProto) -> None:
        self._constants = constant_tensors(graph)
        self._producers = producers(graph)
        self._inputs = names_of(graph.input)  # a caller may replace a weight that is an input too

    def has(self, value: str) -> bool:
        if value in self._inputs:
            return False
        if value in self._constants:
            return not numpy_helper.to_array(self._constants[value]).any()
        node = self._producers.get(value)
        return node is not None and is_standard(node) and self._returns_zeros(node)

    def _returns_zeros(self, node: NodeProto) -> bool:
        if node.op_type == "ConstantOfShape":
            values = [attribute.t for attribute in node.attribute if attribute.name == "value"]
            return not any(numpy_helper.to_array(tensor).any() for tensor in values)
        if node.op_type == "Concat":
            return all(map(self.has, node.input))
        return node.op_type in KEEP_ZEROS and self.has(node.input[0])
