"""Collecting the `Inspection` of a parsed model. For workers only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autoopt.model import tensors as walk
from autoopt.model.inspection import PLAIN_FORMS, Inspection, ValueSpec
from autoopt.model.io import external_locations, external_tensors
from autoopt.model.roles import Dimension
from autoopt.model.split import came_with_external_data, is_split, sizes_of
from autoopt.model.tensors import ALL_VALUES, constant_shapes, names_of, table_lengths

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorShapeProto, ValueInfoProto

DTYPES = {"float": "float32", "double": "float64", "string": "str"}
"""numpy's names of types that ONNX names otherwise."""
LAYERS = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN", "Attention"))
"""Operators of layers; their second and third inputs may be weights, and the fourth one of integer layers."""
VIEWS = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Flatten"))
"""Operators that only change the shape of a value."""
HEADS = ([0, 2, 1, 3], [0, 2, 3, 1])
"""Transpositions of queries and keys in attention, which move elements."""
COPIES = frozenset(("Identity", "Dropout", "Cast"))
"""Operators that simplifiers remove where they change nothing."""
CONSTANT_WEIGHTS = 4
"""The IR version from which weights that are no inputs are constant; before, a model lists all weights as inputs."""
SCALED = ("DequantizeLinear", "Reshape", "Squeeze", "Unsqueeze")
"""Operators between a weight as it is stored and its layer whose first input is the weight, whatever the others are."""
UNPACKING = frozenset((*SCALED, "Cast", "Identity", "Mul", "Sub", "Transpose"))
"""All such operators that exporters write."""
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Recurrent layer -> the matrices that it has side by side."""


def inspect_model(model: ModelProto, path: Path) -> Inspection:
    """Collect the facts about the model in `path`. Reads the graph only, never the weights, and checks nothing."""
    inputs = _inputs(model)
    dtypes: Counter[str] = Counter()
    for tensor in walk.tensors(model):
        dtypes[_dtype(tensor.data_type)] += max(0, math.prod(tensor.dims))
    ops = Counter(map(walk.op_name, walk.nodes(model)))
    files = {path, *(path.parent / location for location in external_locations(model))}
    size = sum(file.stat().st_size for file in files if file.is_file())
    external_data = any(external_tensors(model))
    if is_split(path):
        size = sum(sizes_of(path).values())
        external_data = came_with_external_data(path)
    return Inspection(
        inputs=inputs,
        outputs=tuple(map(_value, model.graph.output)),
        opsets={walk.plain_domain(opset.domain): opset.version for opset in model.opset_import},
        ir_version=model.ir_version,
        op_counts=dict(sorted(ops.items())),
        parameters=sum(dtypes.values()),
        bytes=size,
        dynamic_dims=tuple(dict.fromkeys(_dynamic_dims(inputs))),
        external_data=external_data,
        functions=len(model.functions),
        weight_dtypes=dict(sorted(dtypes.items())),
        layer_parameters=_layer_parameters(walk.graphs(model)),
        view_pairs=_view_pairs(model.graph),
        overridable=_overridable(model),
        narrow_convolutions=_narrow_convolutions(walk.graphs(model)),
        body_counts=_body_counts(model),
        table_lengths=table_lengths(model.graph, ALL_VALUES),
    )


def first_unreadable_name(model: ModelProto) -> bytes:
    """The first name of a value, a node or an operator that is not UTF-8 text; empty without one.

    Runtimes take such names, which old exporters write in the encoding of their machine; Python's protobuf has no text
    for them.
    """
    names = [value.name for value in (*model.graph.input, *model.graph.output, *model.graph.initializer)]
    for node in walk.nodes(model):
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
    return next((name for name in names if isinstance(name, bytes)), b"")


def _body_counts(model: ModelProto) -> dict[str, int]:
    """Count the nodes in bodies of the graph's nodes by operator."""
    ops: Counter[str] = Counter()
    for node in model.graph.node:
        for body in walk.bodies(node):
            ops.update(map(walk.op_name, body.node))
    return dict(sorted(ops.items()))


def _layer_parameters(graphs: Iterable[GraphProto]) -> dict[str, int]:
    """Sum up the elements of the weights of layers by operator."""
    counts: Counter[str] = Counter()
    shapes: dict[str, tuple[int, ...]] = {}
    for graph in graphs:
        shapes = _weight_shapes(graph, shapes)  # bodies read those of the graphs around them
        for node in graph.node:
            name = walk.op_name(node)
            layer = PLAIN_FORMS.get(name, name)
            if layer.rpartition("::")[2] in LAYERS:
                inputs = node.input[1 : 4 if name in PLAIN_FORMS else 3]
                size = sum(math.prod(shapes.get(value, (0,))) for value in set(inputs))
                counts[layer] += max(0, size or _computed_weights(node))
    return dict(sorted(counts.items()))


def _weight_shapes(graph: GraphProto, outer: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shapes of a graph's constants, of `outer` graphs, and of weights that nodes unpack from shorter types.

    Of what such nodes compute, only the number of elements is right.
    """
    shapes = {**outer, **constant_shapes(graph)}
    for node in graph.node:
        if node.op_type not in UNPACKING or not node.output:
            continue
        names = list(filter(None, node.input))
        if node.op_type in SCALED:
            names = names[:1]
        if names and shapes.keys() >= set(names):
            shapes[node.output[0]] = max(map(shapes.__getitem__, names), key=math.prod)
    return shapes


def _view_pairs(graph: GraphProto) -> int:
    """Count the views that take the value of another one, or a copy of it."""
    shapes = {value.name: _value(value).shape for value in (*graph.input, *graph.value_info)}
    pairs = 0
    behind_view: set[str] = set()
    for node in graph.node:
        source = next(iter(node.input), "")
        is_view = _may_be_view(node, shapes)
        if is_view and source in behind_view:
            pairs += 1
        if is_view or (node.op_type in COPIES and source in behind_view):
            behind_view.update(node.output[:1])
    return pairs


def _may_be_view(node: NodeProto, shapes: Mapping[str, tuple[Dimension, ...] | None]) -> bool:
    """Tell if a node only changes a shape, as a Transpose does that moves only axes of size 1."""
    if node.op_type != "Transpose":
        return node.op_type in VIEWS
    order = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"), [])
    shape = shapes.get(next(iter(node.input), ""))
    if shape is None or sorted(order) != list(range(len(shape))):
        return order not in HEADS
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)


def _overridable(model: ModelProto) -> tuple[str, ...]:
    """The weights that are inputs too, where the model could have left them out."""
    if model.ir_version < CONSTANT_WEIGHTS:
        return ()
    weights = names_of(model.graph.initializer)
    return tuple(value.name for value in model.graph.input if value.name in weights)


def _narrow_convolutions(graphs: Iterable[GraphProto]) -> int:
    """Count the convolutions whose kernels, [outputs, inputs, length] or [..., length, 1], are longer than one."""
    count = 0
    shapes: dict[str, tuple[int, ...]] = {}
    for graph in graphs:
        shapes = _weight_shapes(graph, shapes)
        for node in graph.node:
            if walk.op_name(node) == "Conv":
                length, *width = shapes.get(node.input[1], ())[2:] or (1,)
                count += length > 1 and width in ([], [1])
    return count


def _computed_weights(node: NodeProto) -> int:
    """Elements of the weights that a recurrent layer gets from other nodes, as exporters put its gates in order.

    Its input counts as wide as its state.
    """
    size = next((attribute.i for attribute in node.attribute if attribute.name == "hidden_size"), 0)
    return 2 * GATES.get(node.op_type, 0) * int(size) ** 2


def _inputs(model: ModelProto) -> tuple[ValueSpec, ...]:
    """The inputs of the graph that are not weights."""
    initializers = names_of(model.graph.initializer)
    initializers |= {sparse.values.name for sparse in model.graph.sparse_initializer}
    return tuple(_value(value) for value in model.graph.input if value.name not in initializers)


def _dtype(code: int) -> str:
    """Name a type as numpy does: `float32`, `bfloat16`, `str`."""
    from onnx import TensorProto

    try:
        name: str = TensorProto.DataType.Name(code).lower()
    except ValueError:
        return f"type{code}"
    return DTYPES.get(name, name)


def _value(value: ValueInfoProto) -> ValueSpec:
    kind = value.type.WhichOneof("value") or "undefined"
    if kind != "tensor_type":
        return ValueSpec(value.name, kind.removesuffix("_type"), None)
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(map(_dim, tensor.shape.dim))
    return ValueSpec(value.name, _dtype(tensor.elem_type), shape)


def _dim(dim: TensorShapeProto.Dimension) -> Dimension:
    # Some exporters write -1 or ? for an open dimension; two of them need not have the same size.
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    name = str(dim.dim_param)
    return None if name in ("", "?") else name


def _dynamic_dims(inputs: Iterable[ValueSpec]) -> Iterator[str]:
    for value in inputs:
        for axis, dim in enumerate(value.dims):
            if not isinstance(dim, int):
                yield dim or f"{value.name}[{axis}]"
