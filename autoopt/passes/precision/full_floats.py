"""Conversion of models in other float types to float32."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final

from autoopt.model.lazy_imports import ir, np
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.onnx_tools.opsets import with_inlined_functions
from autoopt.passes.onnx_tools.values import give_types, given_inputs, stored_tensors
from autoopt.registry import Tolerance

TYPE_ATTRIBUTES: Final = ("to", "dtype", "output_dtype")
"""Attributes that name the type of a result."""


class Float32(Pass):
    """Converts float16 and bfloat16 weights and computation to float32; inputs and outputs keep their types.

    Faster on most CPUs, whose provider has few kernels for these types and computes the others through casts. The model
    becomes twice as large. Passes that quantize need float32, too.
    """

    version = 2
    tolerance: ClassVar[Tolerance] = "equal"
    requires = ("ir_upgrade",)
    conflicts = (*RUNTIME_BOUND, *QUANTIZATIONS)
    libraries = ("onnx",)
    aliases: ClassVar[tuple[str, ...]] = ("fp32", "half_to_float")
    converted: ClassVar[tuple[str, ...]] = ("FLOAT16", "BFLOAT16")
    """The types that become float32, by their names in onnx."""

    def run(self, source: ir.Model) -> ir.Model | None:
        model = with_inlined_functions(source)
        types = {ir.DataType[name] for name in self.converted}
        kinds = _kinds_of_ends(model.graph, types)
        if not kinds and not any(tensor.dtype in types for tensor in stored_tensors(model)):
            return None
        if any(node.op_type == "DequantizeLinear" for node in model.graph.all_nodes()):
            raise Refused("the model is quantized; dequantize turns it into a float model")
        for graph in model.graphs():
            _convert(graph, types)
        give_types(model, kinds)
        return model


class Float64ToFloat32(Float32):
    """Converts float64 weights and computation to float32; inputs and outputs keep their types.

    For models of scikit-learn and of scripts with numpy's default type: half as large, and most kernels and all passes
    that quantize are for float32. Numbers beyond float32's range become its largest ones.
    """

    version = 1
    tolerance: ClassVar[Tolerance] = "lossy"
    aliases = ("double_to_float",)
    converted: ClassVar[tuple[str, ...]] = ("DOUBLE",)


def _declared(value: ir.Value) -> ir.DataType | None:
    """The element type that a tensor is declared with."""
    return value.dtype if isinstance(value.type, ir.TensorType) else None


def _kinds_of_ends(graph: ir.Graph, types: Collection[ir.DataType]) -> dict[str, ir.DataType]:
    """The types of those inputs and outputs that have one of these, by name."""
    kinds: dict[str, ir.DataType] = {}
    for value in (*given_inputs(graph), *graph.outputs):
        kind = _declared(value)
        if kind is not None and kind in types:
            kinds[str(value.name)] = kind
    return kinds


def _convert(graph: ir.Graph, types: Collection[ir.DataType]) -> None:
    """Turn the weights and constants of a graph, and what it declares of its values, to float32, in place."""
    for value in (*graph.inputs, *graph.initializers.values(), *graph.outputs):
        if value.const_value is not None and value.const_value.dtype in types:
            value.const_value = _float32(value.const_value)
        if _declared(value) in types:
            value.dtype = ir.DataType.FLOAT
    for node in graph:
        node.attributes.update({each.name: _converted(each, types) for each in node.attributes.values()})
        for value in node.outputs:
            if not value.is_graph_output():
                value.type = value.shape = None


def _converted(attribute: ir.Attr, types: Collection[ir.DataType]) -> ir.Attr:
    """An attribute for float32, where it names another type or is a tensor of one."""
    if attribute.name in TYPE_ATTRIBUTES and attribute.value in types:
        return ir.AttrInt64(attribute.name, ir.DataType.FLOAT)
    if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in types:
        return ir.AttrTensor(attribute.name, _float32(attribute.as_tensor()))
    return attribute


def _float32(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """The tensor in float32; only infinities become infinite."""
    values = tensor.numpy()
    if values.dtype == np.float64:
        largest = np.finfo(np.float32).max
        values = np.where(np.isinf(values), values, np.clip(values, -largest, largest))
    return ir.tensor(values.astype("float32"), name=tensor.name)
