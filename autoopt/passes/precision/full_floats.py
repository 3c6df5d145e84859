"""Conversion of a float16 model to float32."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import numpy_helper, onnx
from autoopt.model.tensors import tensors, walk_graphs
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.onnx_tools.casts import cast_input, cast_output
from autoopt.passes.onnx_tools.functions import inline_functions
from autoopt.passes.onnx_tools.graphs import caller_inputs, op_counts, walk_nodes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

TYPE_ATTRIBUTES: Final = ("to", "dtype", "output_dtype")
"""Attributes that name the type of a result."""


class Float32(Pass):
    """Converts float16 and bfloat16 weights and computation to float32; inputs and outputs keep their types.

    Faster on most CPUs, whose provider has few kernels for these types and computes the others through casts. The model
    becomes twice as large. Passes that quantize need float32, too.
    """

    version = 2
    tolerance = "equal"
    requires = ("ir_upgrade",)
    conflicts = (*RUNTIME_BOUND, *QUANTIZATIONS)
    libraries = ("onnx",)
    aliases = ("fp32", "half_to_float")

    def run(self, model: ModelProto) -> ModelProto | None:
        model = inline_functions(model)
        if not computes_half(model):
            return None
        if op_counts(model)["DequantizeLinear"]:
            raise Refused("the model is quantized; dequantize turns it into a float model")
        inputs, outputs = _half_values(caller_inputs(model)), _half_values(model.graph.output)
        kinds = {value.name: value.type.tensor_type.elem_type for value in (*inputs, *outputs)}
        for tensor in tensors(model):
            widen(tensor)
        _widen_results(walk_nodes(model.graph))
        for graph in walk_graphs(model.graph):
            del graph.value_info[:]
            for value in _half_values((*graph.input, *graph.output)):
                value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        for value in inputs:
            cast_input(model, value, kinds[value.name])
        for value in outputs:
            cast_output(model, value, kinds[value.name])
        return model


def computes_half(model: ModelProto) -> bool:
    """True if a weight, input or output of the model has the type float16 or bfloat16."""
    values = (*model.graph.input, *model.graph.output)
    types = {value.type.tensor_type.elem_type for value in values}
    types.update(tensor.data_type for tensor in tensors(model))
    return not types.isdisjoint(_half_types())


def _half_types() -> tuple[int, ...]:
    return onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16


def widen(tensor: onnx.TensorProto) -> None:
    """Convert a float16 or bfloat16 tensor to float32, in place; others stay."""
    if tensor.data_type in _half_types():
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float32"), tensor.name))


def _widen_results(nodes: Iterable[NodeProto]) -> None:
    """Let nodes that name float16 or bfloat16 as the type of their result have float32."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name in TYPE_ATTRIBUTES and attribute.i in _half_types():
                attribute.i = onnx.TensorProto.FLOAT


def _half_values(values: Iterable[ValueInfoProto]) -> list[ValueInfoProto]:
    """Those of the values that are float16 or bfloat16."""
    return [value for value in values if value.type.tensor_type.elem_type in _half_types()]
