"""Work before and after the model, built into its graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from autoopt.errors import did_you_mean
from autoopt.model.lazy_imports import helper, np, numpy_helper, onnx
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import caller_inputs, fixed_size, rename_inputs, rename_value, replace_items
from autoopt.passes.onnx_tools.opsets import at_least_opset

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto


class PrependPreprocessing(Pass):
    """Makes the model take raw 8-bit images: `(image * scale - mean) / std` and the layout change become part of it.

    The input keeps its name and becomes uint8. Mean and std are per channel, in the order of the model's channels.
    """

    conflicts = RUNTIME_BOUND
    aliases = ("prepend_preproc",)

    input: Annotated[str, "name of the input; empty: the only one"] = ""
    image_layout: Annotated[Literal["NHWC", "NCHW"], "layout of the raw image; the model itself takes NCHW"] = "NHWC"
    scale: Annotated[float, "factor on the raw values"] = 1 / 255
    mean: Annotated[list[float], "values to subtract, one per channel or one for all; empty: none"] = []
    std: Annotated[list[float], "values to divide by, one per channel or one for all; empty: none"] = []

    def run(self, model: ModelProto) -> ModelProto:
        prepared = at_least_opset(model, 13)
        value = select_value(caller_inputs(prepared), self.input, "input")
        tensor = value.type.tensor_type
        if tensor.elem_type != onnx.TensorProto.FLOAT or len(tensor.shape.dim) != 4:
            raise Refused(f"input {value.name!r} is not a float32 image batch (4 dimensions)")
        dims = [fixed_size(dim) or dim.dim_param or None for dim in tensor.shape.dim]
        if self.image_layout == "NHWC":
            dims = [dims[0], dims[2], dims[3], dims[1]]
        name = value.name
        inner = f"{name}/model"
        rename_inputs(prepared.graph.node, {name: inner})
        replace_items(prepared.graph.node, [*self._add_steps(prepared, name, inner), *prepared.graph.node])
        value.CopyFrom(helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, dims))
        return prepared

    def _add_steps(self, model: ModelProto, name: str, inner: str) -> list[NodeProto]:
        """Add the constants to `model` and return the nodes that lead from `name` to `inner`."""
        steps: list[tuple[str, list[str], dict[str, object]]] = [("Cast", [], {"to": onnx.TensorProto.FLOAT})]
        if self.image_layout == "NHWC":
            steps.append(("Transpose", [], {"perm": [0, 3, 1, 2]}))
        scale = [] if self.scale == 1.0 else [self.scale]
        for op, label, values in (("Mul", "scale", scale), ("Sub", "mean", self.mean), ("Div", "std", self.std)):
            if values:
                per_channel = np.asarray(values, np.float32).reshape(-1, 1, 1)
                model.graph.initializer.append(numpy_helper.from_array(per_channel, f"{name}/{label}"))
                steps.append((op, [f"{name}/{label}"], {}))
        nodes, current = [], name
        for op, constants, attributes in steps:
            target = f"{name}/{op.lower()}"
            nodes.append(helper.make_node(op, [current, *constants], [target], name=f"{name}/{op}", **attributes))
            current = target
        nodes[-1].output[0] = inner
        return nodes

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None


class AppendPostprocessing(Pass):
    """Appends a softmax, a sigmoid or the index of the largest value over the last axis.

    The output keeps its name.
    """

    changes_outputs = True
    conflicts = RUNTIME_BOUND

    kind: Annotated[Literal["softmax", "sigmoid", "argmax"], "operation to append"] = "softmax"
    output: Annotated[str, "name of the output; empty: the only one"] = ""

    def run(self, model: ModelProto) -> ModelProto:
        prepared = at_least_opset(model, 13)
        value = select_value(prepared.graph.output, self.output, "output")
        if value.type.tensor_type.elem_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            raise Refused(f"output {value.name!r} is not a float tensor")
        name = value.name
        inner = f"{name}/model"
        rename_value(prepared.graph, name, inner)
        op, attributes = _POSTPROCESSING[self.kind]
        prepared.graph.node.append(helper.make_node(op, [inner], [name], name=f"{name}/{op}", **attributes))
        if self.kind == "argmax":
            value.type.tensor_type.elem_type = onnx.TensorProto.INT64
            if value.type.tensor_type.shape.dim:
                del value.type.tensor_type.shape.dim[-1]
        return prepared

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None


_POSTPROCESSING: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("Softmax", {"axis": -1}),
    "sigmoid": ("Sigmoid", {}),
    "argmax": ("ArgMax", {"axis": -1, "keepdims": 0}),
}
"""Operator and attributes by kind."""


def select_value(values: Iterable[ValueInfoProto], name: str, kind: str) -> ValueInfoProto:
    """Find the value of that name, or the only one if `name` is empty.

    Raises:
        Refused: the name is unknown, or empty although there are several values.
    """
    by_name = {value.name: value for value in values}
    if name in by_name:
        return by_name[name]
    if name:
        hint = did_you_mean(name, by_name)
        raise Refused(f"the model has no {kind} {name!r}" + (f"; {hint}" if hint else ""))
    if len(by_name) != 1:
        raise Refused(f"the model has {len(by_name)} {kind}s; choose one of {', '.join(sorted(by_name))}")
    return next(iter(by_name.values()))
