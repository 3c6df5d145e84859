"""The facts about a model that planning uses: frozen, as JSON.

`inspect_model`, for workers only, collects them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt import json_codec
from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonObject, JsonValue
from autoopt.model import tensors as walk
from autoopt.model.io import external_locations, external_tensors
from autoopt.model.roles import Dimension, Kind, Role, input_roles, output_roles
from autoopt.model.split import came_with_external_data, is_split, sizes_of
from autoopt.model.tensors import ALL_VALUES, constant_shapes, names_of, table_lengths

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorShapeProto, ValueInfoProto

QUANTIZERS: Final = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
FLOAT_FORMS: Final[Mapping[str, str]] = {
    "QLinearConv": "Conv",
    "QLinearMatMul": "MatMul",
    "ConvInteger": "Conv",
    "MatMulInteger": "MatMul",
    "com.microsoft::MatMulIntegerToFloat": "MatMul",
    "com.microsoft::DynamicQuantizeMatMul": "MatMul",
    "com.microsoft::DynamicQuantizeLSTM": "LSTM",
    "com.microsoft::MatMulNBits": "MatMul",
    "com.microsoft::GatherBlockQuantized": "Gather",
    "com.microsoft::QLinearConv": "Conv",
    "com.microsoft::QAttention": "com.microsoft::Attention",
    "com.microsoft::QGemm": "Gemm",
    "com.microsoft::QLinearAdd": "Add",
    "com.microsoft::QLinearMul": "Mul",
    "com.microsoft::QLinearConcat": "Concat",
    "com.microsoft::QLinearWhere": "Where",
    "com.microsoft::QLinearSigmoid": "Sigmoid",
    "com.microsoft::QLinearSoftmax": "Softmax",
    "com.microsoft::QLinearLeakyRelu": "LeakyRelu",
    "com.microsoft::QLinearAveragePool": "AveragePool",
    "com.microsoft::QLinearGlobalAveragePool": "GlobalAveragePool",
}
"""Integer operator -> float operator, as an `Inspection` names them."""
FUSED_LAYERS: Final[Mapping[str, str]] = {
    "com.microsoft::FusedConv": "Conv",
    "com.microsoft::FusedGemm": "Gemm",
    "com.microsoft::FusedMatMul": "MatMul",
}
"""Layer as onnxruntime saves it in optimized models -> the operator of ONNX in it."""
PLAIN_FORMS: Final[Mapping[str, str]] = {**FLOAT_FORMS, **FUSED_LAYERS}
QUANTIZED_OPS: Final = frozenset((*QUANTIZERS, *FLOAT_FORMS))


def with_plain_forms(op_counts: Mapping[str, int]) -> dict[str, int]:
    """Nodes by operator, with the plain forms of integer operators and fused layers beside them."""
    counts = Counter(op_counts)
    for op in PLAIN_FORMS.keys() & op_counts.keys():
        counts[PLAIN_FORMS[op]] += op_counts[op]
    return dict(sorted(counts.items()))


@dataclass(frozen=True)
class ValueSpec:
    """An input or output of a model."""

    name: str
    dtype: str
    """As numpy names it (`float32`, `str`), or the kind of a value that is not a tensor (`sequence`)."""
    shape: tuple[Dimension, ...] | None
    """None if not even the rank is known."""

    @property
    def dims(self) -> tuple[Dimension, ...]:
        """The dimensions; none if not even their number is known."""
        return self.shape or ()

    @property
    def is_float(self) -> bool:
        return self.dtype in ("float16", "float32", "float64")

    @property
    def is_integer(self) -> bool:
        return self.dtype.removeprefix("u") in ("int8", "int16", "int32", "int64")


@dataclass(frozen=True)
class Inspection:
    """A model's interface and content. Names are the model's own: clean them (`errors.one_line`) to show them."""

    inputs: tuple[ValueSpec, ...]
    """Without initializers that are listed as inputs too."""
    outputs: tuple[ValueSpec, ...]
    opsets: Mapping[str, int]
    """Version by domain; the default domain is `""`."""
    ir_version: int
    op_counts: Mapping[str, int]
    """Nodes by operator (`Conv`, `com.microsoft::Gelu`), subgraphs and model-local functions included."""
    parameters: int
    """Elements of all weights: initializers and constants."""
    bytes: int
    """Of the model and its external data."""
    dynamic_dims: tuple[str, ...] = ()
    """Symbolic sizes of inputs by name; `input[axis]` for one without a name."""
    external_data: bool = False
    functions: int = 0
    """Number of model-local functions."""
    weight_dtypes: Mapping[str, int] = field(default_factory=dict)
    """Elements of weights by type."""
    layer_parameters: Mapping[str, int] = field(default_factory=dict)
    """Elements of the weights of layers by operator: Conv, MatMul, LSTM, ...; integer layers count as float ones."""
    view_pairs: int = 0
    """Operators that only change the shape of a value, right behind another one of them."""
    overridable: tuple[str, ...] = ()
    """Weights that callers may replace, because the model lists them as inputs too."""
    repairs: tuple[str, ...] = ()
    """A few words on each fault of the file that was mended when the model was taken in. Not stored."""
    narrow_convolutions: int = 0
    """Convolutions along one axis: of signals, or of images with kernels of one column."""
    body_counts: Mapping[str, int] = field(default_factory=dict)
    """Nodes in bodies of If, Loop and Scan, by operator."""
    table_lengths: Mapping[str, int] = field(default_factory=dict)
    """Length of the table that an input indexes, as token ids do; the shortest one if there are several."""
    input_roles: Mapping[str, Role] = field(default_factory=dict)
    """Roles of the inputs; inferred if not given."""
    output_roles: Mapping[str, Role] = field(default_factory=dict)

    def __post_init__(self) -> None:
        roles = self.input_roles or input_roles(self.inputs, self.table_lengths)
        object.__setattr__(self, "input_roles", roles)
        object.__setattr__(self, "output_roles", output_roles(self.outputs, self.inputs, roles))

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in the model's order."""
        return tuple(spec.name for spec in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, in the model's order."""
        return tuple(spec.name for spec in self.outputs)

    @property
    def ops(self) -> frozenset[str]:
        """The operators that occur, and the plain forms of integer operators and fused layers."""
        return frozenset(with_plain_forms(self.op_counts))

    @property
    def traits(self) -> frozenset[str]:
        """Properties that passes may need besides operators: `local functions`, `int64 inputs`."""
        traits = set()
        if self.functions:
            traits.add("local functions")
        if any(spec.dtype == "int64" for spec in self.inputs):
            traits.add("int64 inputs")
        return frozenset(traits)

    def with_roles(self, given: Mapping[str, Kind]) -> Inspection:
        """The inspection with the kinds of inputs that the user gives.

        Raises:
            InputError: There is no such input, or no such kind.
        """
        for name in given:
            if name not in self.input_names:
                remedy = did_you_mean(name, self.input_names)
                raise InputError(f"no input {name!r}", where="measurement.roles", remedy=remedy)
        return replace(self, input_roles=input_roles(self.inputs, self.table_lengths, given)) if given else self

    def has_same_graph(self, other: Inspection) -> bool:
        """True if two models differ only in the values of their weights, as far as their inspections show."""
        mine = (self.inputs, self.outputs, self.opsets, self.op_counts, self.parameters, self.weight_dtypes)
        theirs = (other.inputs, other.outputs, other.opsets, other.op_counts, other.parameters, other.weight_dtypes)
        return mine == theirs

    def to_json(self) -> dict[str, JsonValue]:
        return json_codec.to_json(self)

    @staticmethod
    def from_json(document: JsonObject) -> Inspection:
        return json_codec.from_json(Inspection, document)


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
    weights = names_of((*model.graph.initializer, *(sparse.values for sparse in model.graph.sparse_initializer)))
    inputs = tuple(_value(value) for value in model.graph.input if value.name not in weights)
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
