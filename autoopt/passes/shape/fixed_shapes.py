"""Open dimensions made fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from autoopt.model.lazy_imports import onnx
from autoopt.model.tensors import by_name
from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools.graphs import caller_inputs, clear_unknown_dims, fixed_size, replace_items
from autoopt.passes.onnx_tools.large_models import call_without_weights
from autoopt.passes.shape.inference import RecordsTypes
from autoopt.registry import Minimum

if TYPE_CHECKING:
    from onnx import ModelProto


class FixInputShape(RecordsTypes):
    """Gives inputs fixed shapes, such as `{"input": [1, 3, 224, 224]}`, and records the shapes that follow from them.

    The model then accepts only these shapes. Inputs not listed in `shapes` get `open_dims` for every open dimension.
    """

    libraries = ("onnx", "onnxruntime")

    shapes: Annotated[dict[str, list[int]], "fixed shapes by input name"] = {}
    open_dims: Annotated[int, Minimum(1), "size of the open dimensions of all other inputs"] = 1

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxruntime.tools.onnx_model_utils import make_input_shape_fixed

        inputs = by_name(caller_inputs(model))
        for name in self.shapes:
            if name not in inputs:
                raise Refused(f"the model has no input {name!r}; it has {', '.join(inputs)}")
        clear_unknown_dims(model)
        before = _signature(model)
        self._set_shapes(model)
        for name, value in inputs.items():
            if name not in self.shapes and value.type.HasField("tensor_type"):
                dims = value.type.tensor_type.shape.dim
                make_input_shape_fixed(model.graph, name, [fixed_size(dim) or self.open_dims for dim in dims])
        if _signature(model) == before:
            return None
        return infer_fixed_shapes(model)

    def _set_shapes(self, model: ModelProto) -> None:
        """Give the inputs named in `shapes` their shapes, in place."""
        from onnxruntime.tools.onnx_model_utils import make_input_shape_fixed

        for name, shape in self.shapes.items():
            try:
                make_input_shape_fixed(model.graph, name, shape)
            except ValueError as error:
                raise Refused(f"input {name!r} cannot have the shape {shape}: {error}") from error


class FixDimParam(RecordsTypes):
    """Gives a named dimension, such as `batch`, a fixed size in the whole model."""

    libraries = ("onnx", "onnxruntime")

    dim_param: Annotated[str, "name of the dimension; empty: the first open dimension of the first input"] = ""
    value: Annotated[int, Minimum(1), "size of the dimension"] = 1

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed

        names: list[str] = []
        for value in caller_inputs(model):
            names += [dim.dim_param for dim in value.type.tensor_type.shape.dim if dim.dim_param]
        name = self.dim_param or next(iter(names), "")
        if not name:
            return None
        if name not in names:
            available = ", ".join(dict.fromkeys(names)) or "none"
            raise Refused(f"no input has a dimension named {name!r}; named dimensions: {available}")
        make_dim_param_fixed(model.graph, name, self.value)
        return infer_fixed_shapes(model)


def _signature(model: ModelProto) -> list[bytes]:
    return [value.SerializeToString(deterministic=True) for value in model.graph.input]


def infer_fixed_shapes(model: ModelProto) -> ModelProto:
    """Record the inner and output shapes that follow from fixed input shapes, in place."""
    inferred = call_without_weights(onnx.shape_inference.infer_shapes, model)
    for output, inferred_output in zip(model.graph.output, inferred.graph.output, strict=True):
        if output.type.HasField("tensor_type"):
            output.type.CopyFrom(inferred_output.type)
    replace_items(model.graph.value_info, inferred.graph.value_info)
    return model
