"""Gemm written as MatMul and Add, which is what weight quantizers and attention fusions look for."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.model.tensors import by_name, names_of, walk_graphs
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    is_standard,
    new_name,
    read_names,
    replace_items,
    value_names,
)

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

FACTORS: Final = ("alpha", "beta")
"""Attributes of Gemm that scale its product and its bias."""
ATTENTION_OPS: Final = ("Attention", "MultiHeadAttention", "GroupQueryAttention")
"""Of onnxruntime; their first output has three dimensions."""


def split_gemms(model: ModelProto, excluded: Collection[str] = ()) -> int:
    """Replace each Gemm but the `excluded` by MatMul and Add, in place, also in bodies; return their number.

    Only those whose second input is fixed, so that its transposition and scale cost nothing at run time. The MatMul
    takes the node's name.
    """
    names = value_names(model)
    replaced = 0
    for graph in list(walk_graphs(model.graph)):
        splitter = _Splitter(graph, model.graph, names)
        nodes: list[NodeProto] = []
        count = 0
        for node in graph.node:
            is_gemm = node.op_type == "Gemm" and is_standard(node) and node.name not in excluded
            if is_gemm and splitter.is_fixed(node.input[1]):
                nodes += splitter.split(node)
                count += 1
            else:
                nodes.append(node)
        if count:
            replace_items(graph.node, nodes)
            splitter.remove_unused_weights()
        replaced += count
    return replaced


def fold_gemm_factors(model: ModelProto) -> None:
    """Fold `alpha` and `beta` of each Gemm into its constants, in place, also in bodies, with one bias per column.

    Quantizers leave both out, and read other biases wrongly. A Gemm that adds a matrix or a computed value becomes
    MatMul and Add. One without a fixed second input stays as it is.
    """
    names = value_names(model)
    for graph in list(walk_graphs(model.graph)):
        splitter = _Splitter(graph, model.graph, names)
        nodes: list[NodeProto] = []
        for node in graph.node:
            is_gemm = node.op_type == "Gemm" and is_standard(node)
            if is_gemm and splitter.is_fixed(node.input[1]) and not splitter.fold(node):
                nodes += splitter.split(node)
            else:
                nodes.append(node)
        if len(nodes) > len(graph.node):
            replace_items(graph.node, nodes)
        splitter.remove_unused_weights()


def flatten_attention(model: ModelProto) -> None:
    """Flatten the result of an attention in front of a Gemm, in place.

    Attention operators return (batch, items, hidden size) and Gemm takes rows. With a fixed batch, simplifiers make one
    Reshape from the heads to the rows, and fusions replace it together with the attention.
    """
    names = value_names(model)
    for graph in walk_graphs(model.graph):
        attention = {node.output[0] for node in graph.node if node.op_type in ATTENTION_OPS and node.domain}
        nodes: list[NodeProto] = []
        flattened: set[str] = set()
        for node in graph.node:
            if node.op_type == "Gemm" and node.input[0] in attention:
                flattened.add(node.input[0])
                rows = new_name(f"{node.input[0]}_rows", names)
                nodes.append(helper.make_node("Flatten", [node.input[0]], [rows], rows, axis=2))
                node.input[0] = rows
            nodes.append(node)
        if flattened:
            replace_items(graph.node, nodes)
            # The recorded shape is that of the rows.
            replace_items(graph.value_info, [value for value in graph.value_info if value.name not in flattened])


class _Splitter:
    """Writes the nodes that replace a Gemm, and adds their weights to the graph.

    Nodes of bodies may read the weights of the `main` graph. `names` are those of all values; new ones are added.
    """

    def __init__(self, graph: GraphProto, main: GraphProto, names: set[str]) -> None:
        self._graph = graph
        self._main = main
        self._tensors: dict[str, TensorProto] = {}
        for owner in (main, graph):
            self._tensors.update(by_name(owner.initializer))
        self._inputs = names_of((*main.input, *graph.input))
        self._names = names
        self._replaced: set[str] = set()
        self._rights: dict[tuple[str, bool, float], str] = {}

    def is_fixed(self, name: str) -> bool:
        """Tell if callers cannot override the value."""
        return name in self._tensors and name not in self._inputs

    def fold(self, node: NodeProto) -> bool:
        """Fold the factors of a Gemm with a fixed second input into its constants; False without a fixed bias row."""
        values = attribute_values(node)
        sizes = self._tensors[node.input[1]].dims
        columns = sizes[0 if values.get("transB", 0) else 1]
        if len(node.input) > 2 and node.input[2]:
            if not self.is_fixed(node.input[2]):
                return False
            dims, beta = list(self._tensors[node.input[2]].dims), values.get("beta", 1.0)
            if math.prod(dims[:-1]) != 1 or math.prod(dims) not in (1, columns):
                return False
            if beta != 1.0 or dims != [columns]:
                row = np.broadcast_to(self._array(node.input[2]).ravel(), [columns])
                self._replaced.add(node.input[2])
                node.input[2] = self._add(f"{node.input[2]}_row", row, beta)
        node.input[1] = self._weight(node.input[1], transposed=False, factor=values.get("alpha", 1.0))
        replace_items(node.attribute, [item for item in node.attribute if item.name not in FACTORS])
        return True

    def split(self, node: NodeProto) -> list[NodeProto]:
        values = attribute_values(node)
        nodes: list[NodeProto] = []
        left = node.input[0]
        if values.get("transA", 0):
            left = new_name(f"{node.output[0]}_left", self._names)
            nodes.append(helper.make_node("Transpose", [node.input[0]], [left], perm=[1, 0]))
        right = self._weight(node.input[1], bool(values.get("transB", 0)), values.get("alpha", 1.0))
        if len(node.input) < 3 or not node.input[2]:
            return [*nodes, helper.make_node("MatMul", [left, right], list(node.output), name=node.name)]
        product = new_name(f"{node.output[0]}_product", self._names)
        nodes.append(helper.make_node("MatMul", [left, right], [product], name=node.name))
        added, beta = node.input[2], values.get("beta", 1.0)
        if beta != 1.0:
            added = self._scaled(added, beta, nodes, self._tensors[node.input[1]].data_type)
        add_name = f"{node.name}_Add" if node.name else ""
        return [*nodes, helper.make_node("Add", [product, added], list(node.output), name=add_name)]

    def _weight(self, name: str, transposed: bool, factor: float) -> str:
        """The name of the weight, transposed and scaled; Gemms that share a weight share the result."""
        if not transposed and factor == 1.0:
            return name
        key = (name, transposed, factor)
        if key not in self._rights:
            array = self._array(name)
            if transposed:
                array = array.T
            self._replaced.add(name)
            self._rights[key] = self._add(f"{name}_right", array, factor)
        return self._rights[key]

    def _scaled(self, name: str, factor: float, nodes: list[NodeProto], kind: int) -> str:
        """The name of the value times `factor`; appends the node that computes it if the value is not fixed."""
        if self.is_fixed(name):
            self._replaced.add(name)
            return self._add(f"{name}_scaled", self._array(name), factor)
        scaled = new_name(f"{name}_scaled", self._names)
        one = np.ones((), helper.tensor_dtype_to_np_dtype(kind))
        nodes.append(helper.make_node("Mul", [name, self._add("beta", one, factor)], [scaled]))
        return scaled

    def _array(self, name: str) -> np.ndarray:
        return np.asarray(numpy_helper.to_array(self._tensors[name]))

    def _add(self, name: str, array: np.ndarray, factor: float) -> str:
        """Add `array` times `factor` as a weight; return its name."""
        name = new_name(name, self._names)
        scaled = np.ascontiguousarray(array)
        if factor != 1.0:
            scaled = (scaled * np.asarray(factor, np.float64)).astype(array.dtype)
        self._graph.initializer.append(numpy_helper.from_array(scaled, name))
        return name

    def remove_unused_weights(self) -> None:
        """Remove the weights that other ones replaced and no node reads."""
        unused = self._replaced - read_names(self._main)
        for graph in (self._graph, self._main):
            replace_items(graph.initializer, [t for t in graph.initializer if t.name not in unused])
