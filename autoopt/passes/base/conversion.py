"""Models of onnx-ir and protobufs, made from each other.

For a model of 808 nodes and 500 MB, `from_proto` takes 0.01 s of CPU and `to_proto`, which copies the weights, 1.3 s;
for 50 MB 0.03 s. Names, documentation, metadata, functions, quantization annotations and text weights come back as
they were, and so do types of maps, which onnx-ir does not have, on inputs and outputs.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, ir, np, numpy_helper
from autoopt.model.tensors import graphs, names_of, nodes, walk_graphs
from autoopt.passes.base.kept_apart import is_map

if TYPE_CHECKING:
    from onnx import ModelProto, SparseTensorProto, TensorProto, TypeProto

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
