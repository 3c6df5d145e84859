"""Walking a model: all graphs, nodes and tensors, wherever they are nested, and the inputs that index constant tables.

Takes protobuf objects, imports no onnx.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from math import prod
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

BITS = {
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 8),
    **dict.fromkeys((4, 5, 10, 16), 16),
    **dict.fromkeys((1, 6, 12), 32),
    **dict.fromkeys((7, 11, 13, 14), 64),
    15: 128,
    **dict.fromkeys((21, 22, 23), 4),
    25: 2,
    26: 2,
}
"""Bits per element by ONNX type code."""


class _Named(Protocol):
    """A value, a tensor or a node."""

    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=_Named)


def plain_domain(domain: str) -> str:
    """The domain of operators, empty for ONNX's own in both spellings."""
    return "" if domain == "ai.onnx" else domain


def op_name(node: NodeProto) -> str:
    """Name the operator of a node: `Conv`, or `domain::Op` outside ONNX's own domain."""
    domain = plain_domain(node.domain)
    return f"{domain}::{node.op_type}" if domain else str(node.op_type)


def packed_bytes(tensor: TensorProto) -> int | None:
    """Compute the bytes that type and shape need; None for a type with an unknown packing, such as strings."""
    bits = BITS.get(tensor.data_type)
    if bits is None:
        return None
    elements: int = math.prod(tensor.dims)
    return -(-elements * bits // 8)


def weight_bytes(model: ModelProto) -> int:
    """Sum up the bytes of all tensors by type and shape. Reading `raw_data` or `ByteSize` would copy the weights."""
    total = 0
    for tensor in tensors(model):
        size = packed_bytes(tensor)
        if size is None:
            size = int(tensor.ByteSize())
        total += size
    return total


def graphs(model: ModelProto) -> Iterator[GraphProto]:
    """Yield all graphs: the main one, training graphs, and the bodies within nodes, in functions too."""
    yield from walk_graphs(model.graph)
    for training in model.training_info:
        yield from walk_graphs(training.initialization)
        yield from walk_graphs(training.algorithm)
    for function in model.functions:
        for node in function.node:
            yield from bodies(node)


def nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield all nodes, in graphs and in functions."""
    for graph in graphs(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield all tensors: initializers and attributes, with the parts of sparse tensors."""
    for graph in graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in nodes(model):
        for attribute in node.attribute:
            yield from _tensors_of(attribute)
    for function in model.functions:
        for attribute in function.attribute_proto:
            yield from _tensors_of(attribute)


def _tensors_of(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    sparse_tensors = list(attribute.sparse_tensors)
    if attribute.HasField("sparse_tensor"):
        sparse_tensors.append(attribute.sparse_tensor)
    for sparse in sparse_tensors:
        yield from (sparse.values, sparse.indices)


def copy_fields(source: Any, target: Any, but: str) -> None:  # noqa: ANN401  any message of protobuf
    """Copy all fields of a message but one."""
    for field, value in source.ListFields():
        if field.name == but:
            continue
        if hasattr(value, "MergeFrom"):  # a message or a repeated field
            getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)


def names_of(items: Iterable[_Named]) -> set[str]:
    """The names of values, tensors or nodes."""
    return {item.name for item in items}


def by_name(items: Iterable[Named]) -> dict[str, Named]:
    """Values, tensors or nodes by their name."""
    return {item.name: item for item in items}


def return_values(graph: GraphProto, names: Iterable[str]) -> None:
    """Let a graph return inner values too, in place. The runtime infers the types of outputs that have none."""
    outputs = names_of(graph.output)
    for name in names:
        if name not in outputs:
            graph.output.add(name=name)


def walk_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and all graphs in the attributes of its nodes, outermost first."""
    yield graph
    for node in graph.node:
        yield from bodies(node)


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs in the attributes of a node, and all graphs within these."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from walk_graphs(attribute.g)
        for graph in attribute.graphs:
            yield from walk_graphs(graph)


def sort_nodes(graph: GraphProto) -> bool:
    """Sort the nodes of a graph, in place, behind those that they and their bodies read from; earlier ones stay first.

    False if they are sorted already, or in a cycle.
    """
    try:
        order = _order(graph)
    except CycleError:
        return False
    if order == list(range(len(order))):
        return False
    ordered = [graph.node[number] for number in order]
    del graph.node[:]
    graph.node.extend(ordered)
    return True


def _order(graph: GraphProto) -> list[int]:
    """The numbers of the nodes in a valid order, the lowest first. Raises CycleError if there is none."""
    producers = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for number, node in enumerate(graph.node):
        sorter.add(number, *{producers[name] for name in _read(node) if name in producers} - {number})
    sorter.prepare()
    order: list[int] = []
    ready: list[int] = []
    while sorter.is_active():
        for number in sorter.get_ready():
            heappush(ready, number)
        order.append(heappop(ready))
        sorter.done(order[-1])
    return order


def _read(node: NodeProto) -> Iterator[str]:
    """Names of the values that a node and its bodies read, and some that are defined in the bodies."""
    yield from node.input
    for body in bodies(node):
        for inner in body.node:
            yield from inner.input
        yield from (value.name for value in body.output)


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
