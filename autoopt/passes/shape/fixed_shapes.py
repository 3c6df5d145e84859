"""Open dimensions made fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import LAST

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto


class FixInputShape(Pass):
    """Gives inputs fixed shapes: `{"input": [1, 3, 224, 224]}`; what follows from them is recorded too.

    The model then takes these shapes only. Without `shapes`, every open dimension becomes `open_dims`.
    """

    target_bound = False
    tolerance = "lossless"
    touches = ("types",)
    conflicts = LAST
    libraries = ("onnx", "onnxruntime")
    aliases = ("const_input_shape",)

    shapes: Annotated[dict[str, list[int]], "fixed shape by input name"] = {}
    open_dims: Annotated[int, "value of the open dimensions of all other inputs"] = 1

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxruntime.tools.onnx_model_utils import make_input_shape_fixed

        known = {value.name: value for value in real_inputs(model)}
        before = _signature(model)
        for name in self.shapes:
            if name not in known:
                raise Refused(f"the model has no input {name!r}; it has {', '.join(known)}")
        for name, shape in self.shapes.items():
            try:
                make_input_shape_fixed(model.graph, name, shape)
            except ValueError as error:
                raise Refused(f"input {name!r} cannot have the shape {shape}: {error}") from error
        for name, value in known.items():
            if name not in self.shapes and value.type.HasField("tensor_type"):
                shape = value.type.tensor_type.shape
                make_input_shape_fixed(model.graph, name, [d.dim_value or self.open_dims for d in shape.dim])
        return with_fixed_outputs(model) if _signature(model) != before else None


class FixDimParam(Pass):
    """Gives a named dimension, such as `batch`, a fixed value in the whole model."""

    target_bound = False
    tolerance = "lossless"
    touches = ("types",)
    conflicts = LAST
    libraries = ("onnx", "onnxruntime")
    aliases = ("const_batch_size",)

    dim_param: Annotated[str, "name of the dimension; empty: the first open dimension of the first input"] = ""
    value: Annotated[int, "its size"] = 1

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed

        names = [d.dim_param for v in real_inputs(model) for d in v.type.tensor_type.shape.dim if d.dim_param]
        wanted = self.dim_param or next(iter(names), "")
        if not wanted:
            return None
        if wanted not in names:
            known = ", ".join(dict.fromkeys(names)) or "none"
            raise Refused(f"no input has a dimension named {wanted!r}; there are: {known}")
        make_dim_param_fixed(model.graph, wanted, self.value)
        return with_fixed_outputs(model)


def real_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """The inputs that a caller gives: those without an initial value."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def _signature(model: ModelProto) -> list[bytes]:
    return [value.SerializeToString(deterministic=True) for value in model.graph.input]


def with_fixed_outputs(model: ModelProto) -> ModelProto:
    """`model`, with inner and output shapes that follow from its input shapes."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model)
    for output, known in zip(model.graph.output, inferred.graph.output, strict=True):
        if output.type.HasField("tensor_type"):
            output.type.CopyFrom(known.type)
    del model.graph.value_info[:]
    model.graph.value_info.extend(inferred.graph.value_info)
    return model
