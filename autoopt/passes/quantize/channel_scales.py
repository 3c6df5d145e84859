"""Factors moved between the channels of neighbouring layers, so that each channel uses the 8 bits it is given.

All factors are powers of two: the rewritten model computes the same floats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import np, numpy_helper, onnx
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    consumers,
    is_standard,
    producers,
    replace_items,
    walk_nodes,
)

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

LARGEST_EXPONENT: Final = 12
"""Factors stay between 2^-12 and 2^12."""


def powers_of_two(factors: np.ndarray) -> np.ndarray:
    """The nearest powers of two; 1 where a factor is 0 or not finite."""
    usable = np.isfinite(factors) & (factors > 0)
    exponents = np.round(np.log2(np.where(usable, factors, 1.0)))
    powers: np.ndarray = np.exp2(np.clip(exponents, -LARGEST_EXPONENT, LARGEST_EXPONENT))
    return powers


class Layers:
    """The nodes of a main graph with their weights, for edits of weights in place."""

    def __init__(self, model: ModelProto) -> None:
        graph = model.graph
        self.graph = graph
        self.consumers = consumers(graph)
        self.producers = producers(graph)
        self.outputs = {value.name for value in graph.output}
        reads = Counter(name for node in walk_nodes(graph) for name in node.input)
        self._read_in_bodies = reads - Counter(name for node in graph.node for name in node.input)
        public = self.outputs | {value.name for value in graph.input}
        self._tensors: dict[str, TensorProto] = {}
        for tensor in graph.initializer:
            if reads[tensor.name] == 1 and tensor.name not in public:
                self._tensors[tensor.name] = tensor

    def weight(self, name: str) -> np.ndarray | None:
        """A float32 weight that only one node reads; None for all other values."""
        tensor = self._tensors.get(name)
        if tensor is None or tensor.data_type != onnx.TensorProto.FLOAT:
            return None
        return np.asarray(numpy_helper.to_array(tensor))

    def store(self, name: str, array: np.ndarray) -> None:
        """Replace a weight."""
        self._tensors[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name))

    def only_consumer(self, name: str) -> NodeProto | None:
        """The node that alone reads a value, which is no output of the model; else None."""
        nodes = self.consumers.get(name, [])
        if len(nodes) != 1 or not self.is_local(name) or list(nodes[0].input).count(name) != 1:
            return None
        return nodes[0]

    def is_local(self, name: str) -> bool:
        """Tell if only nodes of the main graph read a value."""
        return name not in self.outputs and not self._read_in_bodies[name]

    def insert(self, nodes: Mapping[int, Sequence[NodeProto]]) -> None:
        """Insert nodes behind the node at an index; -1 is the front."""
        ordered = list(nodes.get(-1, ()))
        for index, node in enumerate(self.graph.node):
            ordered.append(node)
            ordered.extend(nodes.get(index, ()))
        replace_items(self.graph.node, ordered)


def rows_of_matrix(node: NodeProto, weight: np.ndarray) -> np.ndarray | None:
    """The weight of a MatMul or Gemm as (input channels, output channels); None for other shapes."""
    if not is_standard(node) or weight.ndim != 2:
        return None
    if node.op_type == "Gemm":
        if attribute_values(node).get("transA"):
            return None
        return stored_matrix(node, weight)
    if node.op_type == "MatMul":
        return weight
    return None


def stored_matrix(node: NodeProto, matrix: np.ndarray) -> np.ndarray:
    """The weight that `rows_of_matrix` reads as `matrix`."""
    if node.op_type == "Gemm" and attribute_values(node).get("transB"):
        return matrix.T
    return matrix
