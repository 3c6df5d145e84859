"""Work before and after the model, built into its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from autoopt.errors import did_you_mean
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.onnx_tools.opsets import at_least_opset

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto


class PrependPreprocessing(Pass):
    """Takes raw 8-bit images: `(image * scale - mean) / std`, from channels last to channels first, in the graph.

    The input keeps its name and becomes uint8; mean and std are per channel, in the order of the model's channels.
    """

    family: ClassVar[str] = "structure"
    conflicts = LAST
    aliases = ("prepend_preproc", "eight_bits_io")

    input: Annotated[str, "the input; empty: the only one"] = ""
    image_layout: Annotated[Literal["NHWC", "NCHW"], "of the raw image; the model itself takes NCHW"] = "NHWC"
    scale: Annotated[float, "factor on the raw values"] = 1 / 255
    mean: Annotated[list[float], "subtracted, one per channel or one for all; empty: nothing"] = []
    std: Annotated[list[float], "divided by, one per channel or one for all; empty: nothing"] = []

    def run(self, model: ModelProto) -> ModelProto:
        from onnx import TensorProto, helper

        prepared = at_least_opset(model, 13)
        weights = {tensor.name for tensor in prepared.graph.initializer}
        value = find([v for v in prepared.graph.input if v.name not in weights], self.input, "input")
        tensor = value.type.tensor_type
        if tensor.elem_type != TensorProto.FLOAT or len(tensor.shape.dim) != 4:
            raise Refused(f"input {value.name!r} is no float32 image batch (4 dimensions)")
        dims = [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim]
        raw = [dims[0], dims[2], dims[3], dims[1]] if self.image_layout == "NHWC" else dims
        name, inner = value.name, f"{value.name}/model"
        for node in prepared.graph.node:
            for index, given in enumerate(node.input):
                if given == name:
                    node.input[index] = inner
        made = self._nodes(prepared, name, inner)
        old = list(prepared.graph.node)
        del prepared.graph.node[:]
        prepared.graph.node.extend([*made, *old])
        value.CopyFrom(helper.make_tensor_value_info(name, TensorProto.UINT8, raw))
        return prepared

    def _nodes(self, model: ModelProto, name: str, inner: str) -> list[NodeProto]:
        from onnx import TensorProto, helper

        steps: list[tuple[str, list[str], dict[str, Any]]] = [("Cast", [], {"to": TensorProto.FLOAT})]
        if self.image_layout == "NHWC":
            steps.append(("Transpose", [], {"perm": [0, 3, 1, 2]}))
        for op, label, values in (("Mul", "scale", [self.scale]), ("Sub", "mean", self.mean), ("Div", "std", self.std)):
            if values and not (op == "Mul" and self.scale == 1.0):
                steps.append((op, [self._constant(model, f"{name}/{label}", values)], {}))
        nodes, current = [], name
        for number, (op, extra, attributes) in enumerate(steps):
            target = inner if number == len(steps) - 1 else f"{name}/{op.lower()}"
            nodes.append(helper.make_node(op, [current, *extra], [target], name=f"{name}/{op}", **attributes))
            current = target
        return nodes

    def _constant(self, model: ModelProto, name: str, values: list[float]) -> str:
        import numpy as np
        from onnx import numpy_helper

        array = np.asarray(values, np.float32).reshape(-1, 1, 1)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def feeds(self, feeds: dict[str, Any]) -> dict[str, Any] | None:
        return None


class AppendPostprocessing(Pass):
    """Ends the model with a softmax, a sigmoid or the index of the largest value over the last axis.

    The output keeps its name.
    """

    family: ClassVar[str] = "structure"
    conflicts = LAST

    kind: Annotated[Literal["softmax", "sigmoid", "argmax"], "what to append"] = "softmax"
    output: Annotated[str, "the output; empty: the only one"] = ""

    def run(self, model: ModelProto) -> ModelProto:
        from onnx import TensorProto, helper

        prepared = at_least_opset(model, 13)
        value = find(prepared.graph.output, self.output, "output")
        if value.type.tensor_type.elem_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            raise Refused(f"output {value.name!r} is no float tensor")
        name, inner = value.name, f"{value.name}/model"
        for node in prepared.graph.node:
            for names in (node.input, node.output):
                for index, given in enumerate(names):
                    if given == name:
                        names[index] = inner
        if self.kind == "argmax":
            made = helper.make_node("ArgMax", [inner], [name], name=f"{name}/ArgMax", axis=-1, keepdims=0)
            value.type.tensor_type.elem_type = TensorProto.INT64
            if value.type.tensor_type.shape.dim:
                del value.type.tensor_type.shape.dim[-1]
        elif self.kind == "softmax":
            made = helper.make_node("Softmax", [inner], [name], name=f"{name}/Softmax", axis=-1)
        else:
            made = helper.make_node("Sigmoid", [inner], [name], name=f"{name}/Sigmoid")
        prepared.graph.node.append(made)
        return prepared

    def feeds(self, feeds: dict[str, Any]) -> dict[str, Any] | None:
        return None


def find(values: Any, name: str, what: str) -> ValueInfoProto:
    """The value of that name, or the only one.

    Raises:
        Refused: unknown name, or no name and several values.
    """
    by_name = {value.name: value for value in values}
    if not name and len(by_name) == 1:
        return next(iter(by_name.values()))
    if name in by_name:
        found: ValueInfoProto = by_name[name]
        return found
    if not name:
        raise Refused(f"the model has {len(by_name)} {what}s: say which ({', '.join(sorted(by_name))})")
    hint = did_you_mean(name, by_name)
    raise Refused(f"the model has no {what} {name!r}" + (f"; {hint}" if hint else ""))
