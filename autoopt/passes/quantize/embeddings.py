"""Embeddings and the LM head of a language model: which they are, whether they are tied, and tables in blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from autoopt.data.decoder import decoder_of
from autoopt.model.lazy_imports import helper, np, numpy_helper, onnx
from autoopt.model.roles import input_roles
from autoopt.model.tensors import by_name, names_of
from autoopt.passes.onnx_tools.graphs import (
    ORT_DOMAIN,
    attribute_values,
    is_standard,
    new_name,
    producers,
    read_names,
    replace_items,
    value_names,
)
from autoopt.passes.onnx_tools.weights import is_transposed
from autoopt.passes.quantize.block_grid import BlockGrid

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

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


def returned_values(model: ModelProto) -> list[str]:
    """The outputs of a model without those that hold a decoder's cache."""
    from autoopt.data.sources.synthetic import input_spec

    names = [value.name for value in model.graph.output]
    decoder = decoder_of(input_roles(map(input_spec, model.graph.input)))
    cache = decoder.outputs(names) if decoder is not None else {}
    return [name for name in names if name not in cache] or names


def last_products(model: ModelProto, products: Sequence[NodeProto]) -> list[NodeProto]:
    """Those of the `products` whose results a model returns, but for a bias, a scale, a softmax and the like."""
    made_by = producers(model.graph)
    weights = names_of(model.graph.initializer)
    reached: set[str] = set()
    names = returned_values(model)
    while names:
        name = names.pop()
        node = made_by.get(name)
        if node is None:
            continue
        reached.add(name)
        computed = [value for value in node.input if value and value not in weights]
        if node.op_type in ELEMENTWISE and is_standard(node) and len(computed) == 1:
            names += computed
    return [node for node in products if node.output[0] in reached]


def table_reads(graph: GraphProto, excluded: Collection[str] = ()) -> Iterator[tuple[NodeProto, TensorProto]]:
    """Yield each Gather of rows of a fixed float table, with the table, except for the nodes with `excluded` names."""
    weights = by_name(graph.initializer)
    inputs = names_of(graph.input)
    for node in graph.node:
        if node.op_type != "Gather" or not is_standard(node) or node.name in excluded:
            continue
        table = weights.get(node.input[0])
        if table is None or table.name in inputs or attribute_values(node).get("axis", 0) != 0:
            continue
        if len(table.dims) == 2 and table.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            yield node, table


def tied_tables(model: ModelProto, products: Sequence[NodeProto]) -> dict[str, str]:
    """Name of a table -> the result of one of the `products` (MatMul) whose weight is the table transposed."""
    weights = by_name(model.graph.initializer)
    tied: dict[str, str] = {}
    for _, table in table_reads(model.graph):
        for node in products:
            weight = weights.get(node.input[1])
            if table.name not in tied and weight is not None and is_transposed(table, weight):
                tied[table.name] = node.output[0]
    return tied


def quantize_tables(
    model: ModelProto, grid: BlockGrid, tied: Mapping[str, str], excluded: Collection[str] = ()
) -> None:
    """Quantize the tables that Gather reads (GatherBlockQuantized), in place.

    `tied` are those of `tied_tables`, by now perhaps products with weights in blocks. A table that is tied to one with
    the bits and blocks of the grid reads its weights. A block size that does not divide the columns of a table is
    halved until it does; a table that none divides stays in float.
    """
    writer = _TableWriter(model, grid, tied)
    tables = {node.output[0]: table for node, table in table_reads(model.graph, excluded)}
    nodes = [writer.replaced(node, tables.get(node.output[0])) for node in model.graph.node]
    replace_items(model.graph.node, [*writer.views, *nodes])
    unused = names_of(tables.values()) - read_names(model.graph)
    replace_items(model.graph.initializer, [tensor for tensor in model.graph.initializer if tensor.name not in unused])


@dataclass(frozen=True)
class _BlockTable:
    """A quantized table: the names of its weights, in the order of the node's inputs, and the block size."""

    levels: str
    scales: str
    zero_points: str
    block_size: int


class _TableWriter:
    """Writes the nodes that read quantized tables; each table is quantized once."""

    def __init__(self, model: ModelProto, grid: BlockGrid, tied: Mapping[str, str]) -> None:
        self._graph = model.graph
        self._grid = grid
        self._names = value_names(model)
        self._weights = by_name(model.graph.initializer)
        makers = producers(model.graph)
        self._products = {table: makers[name] for table, name in tied.items() if name in makers}
        self._tables: dict[str, _BlockTable | None] = {}
        self.views: list[NodeProto] = []
        """Nodes that give weights of products the shape of a table."""

    def replaced(self, node: NodeProto, table: TensorProto | None) -> NodeProto:
        """The node that reads the quantized table; the node itself if there is none."""
        if table is None:
            return node
        if table.name not in self._tables:
            self._tables[table.name] = self._shared(table) or self._made(table)
        blocks = self._tables[table.name]
        if blocks is None:
            return node
        names = [blocks.levels, node.input[1], blocks.scales, blocks.zero_points]
        return helper.make_node(
            "GatherBlockQuantized",
            names if blocks.zero_points else names[:3],
            list(node.output),
            name=node.name,
            domain=ORT_DOMAIN,
            bits=self._grid.bits,
            block_size=blocks.block_size,
            gather_axis=0,
            quantize_axis=1,
        )

    def _shared(self, table: TensorProto) -> _BlockTable | None:
        """The weights of the product that the table is tied to, if they are in the blocks of the grid."""
        product = self._products.get(table.name)
        if product is None or product.op_type != "MatMulNBits":
            return None
        settings = attribute_values(product)
        levels, scales, zero_points, groups = [*product.input[1:], "", "", ""][:4]
        if groups or (settings.get("bits", 4), settings["block_size"]) != (self._grid.bits, self._grid.block_size):
            return None
        is_packed = not zero_points or self._weights[zero_points].data_type == onnx.TensorProto.UINT8
        if settings["K"] % self._grid.block_size or not is_packed:
            return None
        # The product takes scales and zero points in two dimensions too.
        rows = table.dims[0]
        for name in filter(None, (scales, zero_points)):
            tensor = self._weights[name]
            tensor.dims[:] = [rows, prod(tensor.dims) // rows]
        shape = numpy_helper.from_array(np.array([rows, -1]), new_name(f"{table.name}_shape", self._names))
        self._graph.initializer.append(shape)
        view = new_name(f"{table.name}_Q{self._grid.bits}", self._names)
        self.views.append(helper.make_node("Reshape", [levels, shape.name], [view], name=view))
        return _BlockTable(view, scales, zero_points, self._grid.block_size)

    def _made(self, table: TensorProto) -> _BlockTable | None:
        size = self._grid.block_size
        while size >= SMALLEST_BLOCK and table.dims[1] % size:
            size //= 2
        if size < SMALLEST_BLOCK:
            return None
        grid = replace(self._grid, block_size=size)
        matrix = numpy_helper.to_array(table)
        parts: list[dict[str, np.ndarray]] = []
        for row in range(0, len(matrix), ROWS_AT_ONCE):
            rows = matrix[row : row + ROWS_AT_ONCE].astype(np.float32)
            parts.append(grid.quantized(np.ascontiguousarray(rows.T)).arrays)
        names = dict.fromkeys(("weight", "scales", "zero_points"), "")
        for kind in parts[0]:
            array = np.concatenate([part[kind] for part in parts]).reshape(len(matrix), -1)
            if kind == "scales":
                array = array.astype(matrix.dtype)
            names[kind] = new_name(f"{table.name}_Q{grid.bits}_{kind}", self._names)
            self._graph.initializer.append(numpy_helper.from_array(array, names[kind]))
        return _BlockTable(names["weight"], names["scales"], names["zero_points"], size)
