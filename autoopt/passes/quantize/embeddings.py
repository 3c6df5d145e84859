"""Embeddings and the LM head of a language model: which they are, whether they are tied, and tables in blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypeAlias

from autoopt.data.decoder import decoder_of
from autoopt.model.lazy_imports import convenience, ir, np
from autoopt.model.roles import input_roles
from autoopt.passes.onnx_tools.gemm import is_weight
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, ORT_DOMAIN, new_name
from autoopt.passes.onnx_tools.values import taken_names
from autoopt.passes.onnx_tools.weights import is_transposed
from autoopt.passes.quantize.block_weights import BlockGrid

FLOATS: Final = (1, 10)
"""Type codes of tables: float32 and float16."""
FLOAT_BITS: Final = 32
EmbeddingBits: TypeAlias = Annotated[
    Literal[0, 2, 4, 8],
    "bits of the tables of Gather (embeddings), in blocks; 0: they stay in float. A table that is tied to a product of "
    "as many bits is stored once",
]
HeadBits: TypeAlias = Annotated[
    Literal[0, 4, 8, 32],
    "bits of the last product (the LM head), whose results the model returns; 0: as `bits`, 32: it stays in float",
]
ELEMENTWISE: Final = frozenset(
    ("Add", "Cast", "Clip", "Div", "Identity", "LogSoftmax", "Mul", "Sigmoid", "Softmax", "Sub", "Tanh")
)
"""Operators that may follow the last product."""
SMALLEST_BLOCK: Final = 16
ROWS_AT_ONCE: Final = 4096
"""Rows of a table that are rounded at once, which limits memory."""


def returned_values(model: ir.Model) -> list[ir.Value]:
    """The outputs of a model without those that hold a decoder's cache."""
    from autoopt.data.sources.synthetic import input_spec

    inputs = [input_spec(ir.serde.serialize_value(value)) for value in model.graph.inputs]
    outputs = {str(value.name): value for value in model.graph.outputs}
    decoder = decoder_of(input_roles(inputs))
    cache = decoder.outputs(list(outputs)) if decoder is not None else {}
    return [value for name, value in outputs.items() if name not in cache] or list(outputs.values())


def last_products(model: ir.Model, products: Sequence[ir.Node]) -> list[ir.Node]:
    """Those of the `products` whose results a model returns, but for a bias, a scale, a softmax and the like."""
    last = {node for value in returned_values(model) for node in _nodes_behind(value)}
    return [node for node in products if node in last]


def _nodes_behind(value: ir.Value) -> Iterator[ir.Node]:
    """Yield the node that makes a value, and those before it through elementwise ones of one computed value."""
    node = value.producer()
    while node is not None:
        yield node
        computed = [each for each in node.inputs if each is not None and not each.is_initializer()]
        if node.op_type not in ELEMENTWISE or node.domain not in DEFAULT_DOMAINS or len(computed) != 1:
            return
        node = computed[0].producer()


def table_reads(graph: ir.Graph, excluded: Collection[str] = ()) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Yield each Gather of rows of a fixed float table, with the table, except for the nodes with `excluded` names."""
    for node in graph:
        table = node.inputs[0] if node.op_type == "Gather" and node.domain in DEFAULT_DOMAINS else None
        if table is None or node.name in excluded or node.attributes.get_int("axis", 0) != 0:
            continue
        if is_weight(table) and table.graph is graph and _is_float_matrix(table.const_value):
            yield node, table


def _is_float_matrix(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and len(tensor.shape) == 2 and tensor.dtype in FLOATS


def tied_tables(model: ir.Model, products: Sequence[ir.Node], bits: int) -> dict[str, str]:
    """Name of a table -> that of the result of one of the `products` (MatMul) whose weight is the table transposed.

    Empty for tables of 0 bits, which stay in float.
    """
    tied: dict[str, str] = {}
    for _, table in table_reads(model.graph) if bits else ():
        for node in products:
            if is_transposed(table, node.inputs[1]):
                tied.setdefault(str(table.name), str(node.outputs[0].name))
    return tied


def quantize_tables(model: ir.Model, grid: BlockGrid, tied: Mapping[str, str], excluded: Collection[str] = ()) -> None:
    """Quantize the tables that Gather reads (GatherBlockQuantized), in place.

    `tied` are those of `tied_tables`, by now perhaps products with weights in blocks. A table that is tied to one with
    the bits and blocks of the grid reads its weights. A block size that does not divide the columns of a table is
    halved until it does; a table that none divides stays in float. With a grid of 0 bits, all do.
    """
    if not grid.bits:
        return
    graph, taken = model.graph, taken_names(model)
    makers = {str(value.name): node for node in graph for value in node.outputs}
    tables: dict[ir.Value, _BlockTable | None] = {}
    for node, table in list(table_reads(graph, excluded)):
        if table not in tables:
            product = makers.get(tied.get(str(table.name), ""))
            tables[table] = _shared(graph, table, product, grid, taken) or _made(graph, table, grid, taken)
        blocks = tables[table]
        if blocks is None:
            continue
        attributes = {"bits": grid.bits, "block_size": blocks.block_size, "gather_axis": 0, "quantize_axis": 1}
        inputs = [blocks.levels, node.inputs[1], blocks.scales, *blocks.zero_points]
        read = ir.node("GatherBlockQuantized", inputs, attributes, domain=ORT_DOMAIN, name=node.name)
        convenience.replace_nodes_and_values(graph, node, [node], [read], node.outputs, read.outputs)
        if not table.uses() and not table.is_graph_output():
            graph.initializers.pop(str(table.name), None)


@dataclass(frozen=True)
class _BlockTable:
    """A quantized table."""

    levels: ir.Value
    scales: ir.Value
    zero_points: list[ir.Value]
    """One value or none."""
    block_size: int


def _shared(
    graph: ir.Graph, table: ir.Value, product: ir.Node | None, grid: BlockGrid, taken: set[str]
) -> _BlockTable | None:
    """The weights of the product that a table is tied to, if they are in the blocks of the grid."""
    if product is None or product.op_type != "MatMulNBits":
        return None
    levels, scales, zero_points, groups = [*product.inputs[1:], None, None, None][:4]
    if groups is not None or levels is None or scales is None:
        return None
    bits, size = product.attributes.get_int("bits", 4), product.attributes.get_int("block_size")
    if (bits, size) != (grid.bits, grid.block_size) or product.attributes.get_int("K") % size:
        return None
    points = [] if zero_points is None else [zero_points]
    if points and _tensor(points[0]).dtype != ir.DataType.UINT8:
        return None
    rows = _tensor(table).shape[0]
    for value in (scales, *points):  # the product takes them in two dimensions too
        value.const_value = ir.tensor(_tensor(value).numpy().reshape(rows, -1), name=value.name)
    shape = _weight(graph, f"{table.name}_shape", np.array([rows, -1]), taken)
    name = new_name(f"{table.name}_Q{bits}", taken)
    view = ir.node("Reshape", [levels, shape], name=name)
    view.outputs[0].name = name
    graph.insert_before(graph[0], view)
    return _BlockTable(view.outputs[0], scales, points, size)


def _tensor(weight: ir.Value) -> ir.TensorProtocol:
    assert weight.const_value is not None
    return weight.const_value


def _made(graph: ir.Graph, table: ir.Value, grid: BlockGrid, taken: set[str]) -> _BlockTable | None:
    """A table in blocks of its own."""
    matrix, size = _tensor(table).numpy(), grid.block_size
    while size >= SMALLEST_BLOCK and matrix.shape[1] % size:
        size //= 2
    if size < SMALLEST_BLOCK:
        return None
    parts: list[dict[str, np.ndarray]] = []
    for row in range(0, len(matrix), ROWS_AT_ONCE):
        rows = matrix[row : row + ROWS_AT_ONCE].astype(np.float32)
        parts.append(replace(grid, block_size=size).quantized(np.ascontiguousarray(rows.T)).arrays)
    weights: list[ir.Value] = []
    for kind in parts[0]:
        array = np.concatenate([part[kind] for part in parts]).reshape(len(matrix), -1)
        if kind == "scales":
            array = array.astype(matrix.dtype)
        weights.append(_weight(graph, f"{table.name}_Q{grid.bits}_{kind}", array, taken))
    return _BlockTable(weights[0], weights[1], weights[2:], size)


def _weight(graph: ir.Graph, name: str, array: np.ndarray, taken: set[str]) -> ir.Value:
    """A new weight of a graph."""
    tensor = ir.tensor(array, name=new_name(name, taken))
    value = ir.Value(name=tensor.name, const_value=tensor)
    graph.register_initializer(value)
    return value
