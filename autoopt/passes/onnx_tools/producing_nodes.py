"""Patterns of nodes, followed from the last node back to what it is computed from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoopt.passes.onnx_tools.graphs import producers

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


class ProducingNodes:
    """The nodes of a graph by the values that they compute."""

    def __init__(self, graph: GraphProto) -> None:
        self._by_value = producers(graph)

    def get(self, value: str) -> NodeProto | None:
        """The node that computes a value; None for inputs and weights."""
        return self._by_value.get(value)

    def of_type(self, value: str, op_type: str) -> NodeProto | None:
        """The node that computes a value if it has this type, else None."""
        node = self._by_value.get(value)
        if node is None or node.op_type != op_type:
            return None
        return node

    def before(self, node: NodeProto | None, position: int, op_type: str) -> NodeProto | None:
        """The node that computes one of the inputs of `node` if it has this type, else None.

        `node` may be None, the end of a search that has found nothing: then the result is None too.
        """
        if node is None or position >= len(node.input):
            return None
        return self.of_type(node.input[position], op_type)
