"""Models of onnx-ir and protobufs, made from each other, and parts of a model that libraries cannot hold.

These are kept beside the model while a pass works on the rest. Maps are those of scikit-learn's exporter: ZipMap makes
them of probabilities, DictVectorizer reads them.

For a model of 808 nodes and 500 MB, `from_proto` takes 0.01 s of CPU and `to_proto`, which copies the weights, 1.3 s;
for 50 MB 0.03 s. Names, documentation, metadata, functions, quantization annotations and text weights come back as
they were, and so do types of maps, which onnx-ir does not have, on inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from autoopt.model.lazy_imports import helper, ir, np, numpy_helper, onnx
from autoopt.model.tensors import bodies, by_name, graphs, names_of, nodes, walk_graphs
from autoopt.passes.base.contract import Refused

if TYPE_CHECKING:
    from onnx import (
        GraphProto,
        ModelProto,
        NodeProto,
        OperatorSetIdProto,
        SparseTensorProto,
        TensorProto,
        TrainingInfoProto,
        TypeProto,
        ValueInfoProto,
    )

MAP_TYPE: Final = "map type"
"""Key of the type of a map in the notes of an input or output of onnx-ir, whose own type is unknown then."""


def to_ir(model: ModelProto) -> ir.Model:
    """Convert a model for onnx-ir, which leaves out sparse weights: they become dense, in place."""
    make_weights_dense(model)
    kinds: dict[str, TypeProto] = {}
    for graph in walk_graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if is_map(value.type):
                kinds[value.name] = deepcopy(value.type)
                value.ClearField("type")
    converted = ir.from_proto(model)
    for each in (*converted.graph.inputs, *converted.graph.outputs):
        if each.name in kinds:
            each.meta[MAP_TYPE] = kinds[each.name]
    return converted


def to_proto(model: ir.Model) -> ModelProto:
    """Convert a model of onnx-ir back, without the types that onnx-ir records for weights, which have their own.

    Converters change a weight and leave its recorded type behind, which then contradicts it.
    """
    proto = ir.to_proto(model)
    for graph in walk_graphs(proto.graph):
        weights = names_of(graph.initializer)
        typed = [value for value in graph.value_info if value.name not in weights]
        del graph.value_info[:]
        graph.value_info.extend(typed)
    kinds = {each.name: each.meta.get(MAP_TYPE) for each in (*model.graph.inputs, *model.graph.outputs)}
    for value in (*proto.graph.input, *proto.graph.output):
        if kinds[value.name] is not None:
            value.type.CopyFrom(kinds[value.name])
    return proto


def make_weights_dense(model: ModelProto) -> None:
    """Store sparse weights as dense ones, in place: most libraries leave them out, and the runtime makes them dense."""
    for graph in graphs(model):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse))
        graph.ClearField("sparse_initializer")
    for node in nodes(model):
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "sparse_value":
                attribute.CopyFrom(helper.make_attribute("value", _dense(attribute.sparse_tensor)))


def _dense(sparse: SparseTensorProto) -> TensorProto:
    """The dense form; indices are positions in the flat tensor, or one row of coordinates for each value."""
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return numpy_helper.from_array(dense, sparse.values.name)


MAP_READERS: Final = ("DictVectorizer", "CastMap")
"""Operators that make a tensor of a map."""


@dataclass(frozen=True)
class KeptApart:
    """The ends of a model that are of map type, and its information for training."""

    first: tuple[NodeProto, ...]
    """The nodes that read maps; what they make is an input meanwhile."""
    inputs: tuple[ValueInfoProto, ...]
    """All inputs of the model with them."""
    last: tuple[NodeProto, ...]
    """The nodes that make maps; what they read is an output meanwhile."""
    outputs: tuple[ValueInfoProto, ...]
    """All outputs of the model with them."""
    imports: tuple[OperatorSetIdProto, ...]
    """The operator sets of the nodes, which passes drop where no other node needs them."""
    training: tuple[TrainingInfoProto, ...]

    def put_back(self, model: ModelProto) -> None:
        """Give what became of the model these parts, in place.

        Raises:
            Refused: an input that is made of a map has another type.
            ValueError: the model lacks a value of which maps are made.
        """
        if not model.training_info:
            model.training_info.extend(self.training)
        if self.first:
            self._put_first(model.graph)
        if self.last:
            self._put_last(model.graph)
        imported = {entry.domain for entry in model.opset_import}
        model.opset_import.extend(entry for entry in self.imports if entry.domain not in imported)

    def _put_first(self, graph: GraphProto) -> None:
        made = {name: node for node in self.first for name in node.output}
        inputs = by_name(graph.input)
        for name in made.keys() & inputs.keys():
            if inputs[name].type.tensor_type.elem_type != _type_made(made[name], by_name(self.inputs)):
                raise Refused(f"input {name!r} is made of a map and keeps its type")
        others = [value for value in graph.input if value.name not in made]
        kept = [by_name(others).get(value.name, value) for value in self.inputs]
        _replace(graph.input, [*kept, *(value for value in others if value.name not in names_of(kept))])
        _replace(graph.node, [*self.first, *graph.node])

    def _put_last(self, graph: GraphProto) -> None:
        made = names_of(graph.output)
        for node in self.last:
            if not made.issuperset(filter(None, node.input)):
                raise ValueError(f"what {node.op_type} reads is gone")
            made.update(node.output)
        outputs = by_name(graph.output)
        graph.node.extend(self.last)
        _replace(graph.output, [outputs.get(output.name, output) for output in self.outputs])


def keep_apart(model: ModelProto, *, with_outputs: bool) -> KeptApart:
    """Take these parts off a model, in place; outputs of map type only `with_outputs`.

    Maps stay if other nodes than those of scikit-learn's exporter make or read them.
    """
    inputs, outputs, training = tuple(model.graph.input), tuple(model.graph.output), tuple(model.training_info)
    first = _cut_inputs(model.graph)
    last = _cut_outputs(model.graph) if with_outputs else []
    domains = {node.domain for node in (*first, *last)}
    imports = tuple(entry for entry in model.opset_import if entry.domain in domains)
    model.ClearField("training_info")
    return KeptApart(tuple(first), inputs, tuple(last), outputs, imports, training)


def _cut_inputs(graph: GraphProto) -> list[NodeProto]:
    """Cut off the nodes that read inputs of map type, in place: what they make becomes an input."""
    given = by_name(graph.input)
    maps = {name for name, value in given.items() if is_map(value.type)}
    first = [node for node in graph.node if node.op_type in MAP_READERS and maps.issuperset(node.input)]
    others = [node for node in graph.node if node not in first]
    if not first or not maps.isdisjoint(_read(others) | names_of(graph.output)):
        return []
    kinds = {node.output[0]: _type_made(node, given) for node in first}
    made = _declared(kinds, by_name(graph.value_info))
    _replace(graph.input, [*(given[name] for name in given if name not in maps), *made])
    _replace(graph.node, others)
    return first


def _declared(kinds: Mapping[str, int], known: Mapping[str, ValueInfoProto]) -> list[ValueInfoProto]:
    """Declare values as they are known, or else as matrices of these element types."""
    unknown = {name: helper.make_tensor_value_info(name, kind, [None, None]) for name, kind in kinds.items()}
    return [known.get(name, unknown[name]) for name in kinds]


def _type_made(node: NodeProto, inputs: dict[str, ValueInfoProto]) -> int:
    """The element type that a node makes of a map."""
    for attribute in node.attribute:
        if attribute.name == "cast_to":
            kinds = {b"TO_STRING": onnx.TensorProto.STRING, b"TO_INT64": onnx.TensorProto.INT64}
            return int(kinds.get(attribute.s, onnx.TensorProto.FLOAT))
    if node.op_type == "CastMap":
        return int(onnx.TensorProto.FLOAT)
    return int(inputs[node.input[0]].type.map_type.value_type.tensor_type.elem_type)


def _cut_outputs(graph: GraphProto) -> list[NodeProto]:
    """Cut off the nodes that make the outputs of map type, in place: what they read becomes outputs."""
    cut = _values_of_maps(graph, {value.name for value in graph.output if is_map(value.type)})
    nodes, others = _making(cut, graph.node)
    if not cut or not cut.isdisjoint(_read(others)):
        return []
    kept = [output for output in graph.output if output.name not in cut]
    known = {"", *cut, *names_of(kept)}
    read = dict.fromkeys(chain.from_iterable(node.input for node in nodes), onnx.TensorProto.FLOAT)
    missing = {name: kind for name, kind in read.items() if name not in known}
    _replace(graph.node, others)
    _replace(graph.output, [*kept, *_declared(missing, by_name(graph.value_info))])
    return nodes


def _making(names: set[str], nodes: Collection[NodeProto]) -> tuple[list[NodeProto], list[NodeProto]]:
    """The nodes that make one of these values, and the others."""
    making = [node for node in nodes if not names.isdisjoint(node.output)]
    return making, [node for node in nodes if names.isdisjoint(node.output)]


def _values_of_maps(graph: GraphProto, maps: Collection[str]) -> set[str]:
    """The values from the maps up to what their ZipMaps read; empty if no node makes one of them."""
    producers = {name: node for node in graph.node for name in node.output}
    values: set[str] = set()
    pending = sorted(maps)
    while pending:
        node = producers.get(pending.pop())
        if node is None:
            return set()
        values.update(node.output)
        if node.op_type != "ZipMap":
            pending += filter(None, node.input)
    return values


def _read(nodes: Collection[NodeProto]) -> set[str]:
    """The names of all that nodes and their bodies read."""
    inner = {name for node in nodes for body in bodies(node) for each in body.node for name in each.input}
    return inner.union(*(node.input for node in nodes))


def is_map(kind: TypeProto) -> bool:
    """Tell if values of a type are maps or sequences of them."""
    if kind.HasField("sequence_type"):
        return is_map(kind.sequence_type.elem_type)
    return bool(kind.HasField("map_type"))


def _replace(repeated: Any, items: list[Any]) -> None:  # noqa: ANN401  protobuf's type has no name
    del repeated[:]
    repeated.extend(items)
