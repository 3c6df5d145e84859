"""Conversion of a float16 model to float32."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, numpy_helper, onnx
from autoopt.model.tensors import tensors, walk_graphs
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import caller_inputs, new_name, op_counts, rename_value, value_names, walk_nodes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

TYPE_ATTRIBUTES: Final = ("to", "dtype", "output_dtype")
"""Attributes that name the type of a result."""


class Float32(Pass):
    """Converts float16 weights and computation to float32; inputs and outputs keep their types.

    Faster on most CPUs, whose provider has few kernels for float16 and computes the others through casts. The model
    becomes twice as large. Passes that quantize need float32, too.
    """

    tolerance = "equal"
    requires = ("ir_upgrade",)
    conflicts = (*RUNTIME_BOUND, *QUANTIZATIONS)
    libraries = ("onnx",)
    aliases = ("fp32", "half_to_float")

    def run(self, model: ModelProto) -> ModelProto | None:
        if not computes_half(model):
            return None
        if model.functions:
            raise Refused("the model has functions; inline_functions replaces their calls")
        if op_counts(model)["DequantizeLinear"]:
            raise Refused("the model is quantized; remove_qdq turns it into a float model")
        for tensor in tensors(model):
            widen(tensor)
        _keep_signature(model)
        for graph in walk_graphs(model.graph):
            del graph.value_info[:]
            if graph is not model.graph:
                _widen_values((*graph.input, *graph.output))
        return model


def computes_half(model: ModelProto) -> bool:
    """True if a weight, input or output of the model has the type float16."""
    values = (*model.graph.input, *model.graph.output)
    types = {value.type.tensor_type.elem_type for value in values}
    types.update(tensor.data_type for tensor in tensors(model))
    return onnx.TensorProto.FLOAT16 in types


def widen(tensor: onnx.TensorProto) -> None:
    """Convert a float16 tensor to float32, in place; others stay."""
    if tensor.data_type == onnx.TensorProto.FLOAT16:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float32"), tensor.name))


def _keep_signature(model: ModelProto) -> None:
    """Let all nodes compute in float32, with casts at the inputs and outputs of type float16."""
    graph = model.graph
    names = value_names(model)
    before: list[NodeProto] = []
    after: list[NodeProto] = []
    for value in caller_inputs(model):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16:
            wide = new_name(f"{value.name}_float32", names)
            _rename_everywhere(graph, {value.name: wide})
            before.append(helper.make_node("Cast", [value.name], [wide], to=onnx.TensorProto.FLOAT))
    for value in graph.output:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16:
            wide = new_name(f"{value.name}_float32", names)
            _rename_everywhere(graph, {value.name: wide})
            after.append(helper.make_node("Cast", [wide], [value.name], to=onnx.TensorProto.FLOAT16))
    _widen_results(walk_nodes(graph))
    weights = {tensor.name for tensor in graph.initializer}
    _widen_values(value for value in graph.input if value.name in weights)
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)


def _rename_everywhere(graph: GraphProto, renamed: Mapping[str, str]) -> None:
    """Rename values in a graph and its subgraphs; its inputs and outputs keep their names."""
    for inner in walk_graphs(graph):
        for old, new in renamed.items():
            rename_value(inner, old, new)
            if inner is not graph:
                for value in inner.output:
                    if value.name == old:
                        value.name = new


def _widen_results(nodes: Iterable[NodeProto]) -> None:
    """Let nodes that name float16 as the type of their result have float32."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name in TYPE_ATTRIBUTES and attribute.i == onnx.TensorProto.FLOAT16:
                attribute.i = onnx.TensorProto.FLOAT


def _widen_values(values: Iterable[ValueInfoProto]) -> None:
    """Declare float16 values as float32."""
    for value in values:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
