"""Inputs of a model that index a constant table, as token ids do. Takes protobuf objects, imports no library."""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

ALL_VALUES: Final = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose")
"""Operators that hand on all values of their first input."""
SOME_VALUES: Final = (*ALL_VALUES, "Expand", "Slice")
"""Operators whose output holds only values of their first input."""
SAME_SHAPE: Final = ("Cast", "Identity", "DequantizeLinear")
"""Operators whose output has the shape of their first input."""
Known = TypeVar("Known")


def origins(graph: GraphProto, through: Collection[str] = SOME_VALUES) -> dict[str, str]:
    """Return, by value, the input of the graph that it comes from through these operators."""
    known = {value.name: value.name for value in graph.input}
    for node in graph.node:
        if node.op_type in through:
            _hand_on(known, node)
    return known


def constant_shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a graph's initializers and Constant nodes, by the name of their value."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1 and node.output:
            shapes[node.output[0]] = tuple(node.attribute[0].t.dims)
    return shapes


def table_lengths(graph: GraphProto, through: Collection[str] = SOME_VALUES) -> dict[str, int]:
    """Return the length of the table for inputs that index one with Gather; of the shortest if there are several."""
    indices, shapes = origins(graph, through), constant_shapes(graph)
    lengths: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in SAME_SHAPE:
            _hand_on(shapes, node)
        if node.op_type not in ("Gather", "GatherElements") or len(node.input) != 2:
            continue
        table, source = shapes.get(node.input[0], ()), indices.get(node.input[1])
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        if source is not None and -len(table) <= axis < len(table):
            lengths[source] = min(table[axis], lengths.get(source, table[axis]))
    return lengths


def one_hot_lengths(graph: GraphProto) -> dict[str, int]:
    """Return the number of constants that an input is compared with at once, as for one-hot vectors of its values."""
    inputs, shapes = origins(graph), constant_shapes(graph)
    lengths: dict[str, int] = {}
    for node in graph.node:
        if node.op_type == "Equal":
            for name, other in (node.input, reversed(node.input)):
                length = prod(shapes.get(other, ()))
                if name in inputs and length > 1:
                    lengths[inputs[name]] = min(length, lengths.get(inputs[name], length))
    return lengths


def _hand_on(known: dict[str, Known], node: NodeProto) -> None:
    """Note for the output of a node what is known of its first input."""
    if node.input and node.output and node.input[0] in known:
        known[node.output[0]] = known[node.input[0]]
