"""Conversion of models in other float types to float32."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, ClassVar, Final

from autoopt.model.lazy_imports import ir, np, numpy_helper, onnx
from autoopt.model.tensors import tensors, walk_graphs
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.base.conversion import to_ir
from autoopt.passes.onnx_tools.graphs import caller_inputs, op_counts, walk_nodes
from autoopt.passes.onnx_tools.opsets import inline_functions
from autoopt.passes.onnx_tools.values import give_types
from autoopt.registry import Tolerance

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

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

    def run(self, model: ModelProto) -> ir.Model | None:
        model = inline_functions(model)
        types = {onnx.TensorProto.DataType.Value(name) for name in self.converted}
        inputs, outputs = _of_types(caller_inputs(model), types), _of_types(model.graph.output, types)
        if not (inputs or outputs or any(tensor.data_type in types for tensor in tensors(model))):
            return None
        if op_counts(model)["DequantizeLinear"]:
            raise Refused("the model is quantized; dequantize turns it into a float model")
        kinds = {value.name: ir.DataType(value.type.tensor_type.elem_type) for value in (*inputs, *outputs)}
        for tensor in tensors(model):
            if tensor.data_type in types:
                _make_float32(tensor)
        for node in walk_nodes(model.graph):
            for attribute in node.attribute:
                if attribute.name in TYPE_ATTRIBUTES and attribute.i in types:
                    attribute.i = onnx.TensorProto.FLOAT
        for graph in walk_graphs(model.graph):
            del graph.value_info[:]
            for value in _of_types((*graph.input, *graph.output), types):
                value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        converted = to_ir(model)
        give_types(converted, kinds)
        return converted


class Float64ToFloat32(Float32):
    """Converts float64 weights and computation to float32; inputs and outputs keep their types.

    For models of scikit-learn and of scripts with numpy's default type: half as large, and most kernels and all passes
    that quantize are for float32. Numbers beyond float32's range become its largest ones.
    """

    version = 1
    tolerance: ClassVar[Tolerance] = "lossy"
    aliases = ("double_to_float",)
    converted: ClassVar[tuple[str, ...]] = ("DOUBLE",)


def _make_float32(tensor: onnx.TensorProto) -> None:
    """Convert a tensor of another float type to float32, in place; only infinities become infinite."""
    values = numpy_helper.to_array(tensor)
    if values.dtype == np.float64:
        largest = np.finfo(np.float32).max
        values = np.where(np.isinf(values), values, np.clip(values, -largest, largest))
    tensor.CopyFrom(numpy_helper.from_array(values.astype("float32"), tensor.name))


def _of_types(values: Iterable[ValueInfoProto], types: Collection[int]) -> list[ValueInfoProto]:
    return [value for value in values if value.type.tensor_type.elem_type in types]
