"""Work before and after the model, built into its graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from autoopt.model.lazy_imports import ir, np
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.opsets import raised
from autoopt.passes.onnx_tools.values import find_values, given_inputs


class PrependPreprocessing(Pass):
    """Makes the model take raw 8-bit images: `(image * scale - mean) / std` and the layout change become part of it.

    The input keeps its name and becomes uint8. Mean and std are per channel, in the order of the model's channels.
    """

    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")
    aliases = ("prepend_preproc",)

    input: Annotated[str, "name of the input; empty: the only one"] = ""
    image_layout: Annotated[Literal["NHWC", "NCHW"], "layout of the raw image; the model itself takes NCHW"] = "NHWC"
    scale: Annotated[float, "factor on the raw values"] = 1 / 255
    mean: Annotated[list[float], "values to subtract, one per channel or one for all; empty: none"] = []
    std: Annotated[list[float], "values to divide by, one per channel or one for all; empty: none"] = []

    def run(self, model: ir.Model) -> ir.Model:
        prepared = raised(model, 13)
        value = select_value(given_inputs(prepared.graph), self.input, "input")
        if value.dtype != ir.DataType.FLOAT or value.shape is None or len(value.shape) != 4:
            raise Refused(f"input {value.name!r} is not a float32 image batch (4 dimensions)")
        if value.is_graph_output():
            raise Refused(f"input {value.name!r} is an output, too, which would become raw values")
        uses, tape = value.uses(), ir.tape.Tape()
        image = tape.op("Cast", [value], {"to": ir.DataType.FLOAT})
        if self.image_layout == "NHWC":
            image = tape.op("Transpose", [image], {"perm": [0, 3, 1, 2]})
            value.shape = ir.Shape([value.shape[axis] for axis in (0, 2, 3, 1)])
        scale = [] if self.scale == 1.0 else [self.scale]
        for op, label, numbers in (("Mul", "scale", scale), ("Sub", "mean", self.mean), ("Div", "std", self.std)):
            if numbers:
                tensor = ir.tensor(np.asarray(numbers, np.float32).reshape(-1, 1, 1), name=f"{value.name}/{label}")
                constant = ir.Value(name=tensor.name, const_value=tensor)
                prepared.graph.register_initializer(constant)
                image = tape.op(op, [image, constant])
        for use in uses:
            use.node.replace_input_with(use.idx, image)
        prepared.graph.insert_before(prepared.graph[0], tape.nodes)
        value.dtype = ir.DataType.UINT8
        return prepared

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None


class AppendPostprocessing(Pass):
    """Appends a softmax, a sigmoid or the index of the largest value over the last axis.

    The output keeps its name.
    """

    touches = ("outputs",)
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    kind: Annotated[Literal["softmax", "sigmoid", "argmax"], "operation to append"] = "softmax"
    output: Annotated[str, "name of the output; empty: the only one"] = ""

    def run(self, model: ir.Model) -> ir.Model:
        prepared = raised(model, 13)
        graph = prepared.graph
        value = select_value(graph.outputs, self.output, "output")
        if value.type not in (ir.TensorType(ir.DataType.FLOAT), ir.TensorType(ir.DataType.FLOAT16)):
            raise Refused(f"output {value.name!r} is not a float tensor")
        op, attributes = POSTPROCESSING[self.kind]
        node = ir.node(op, [value], attributes, name=f"{value.name}/{op}")
        result = node.outputs[0]
        result.name, value.name = value.name, f"{value.name}/model"
        result.dtype, result.shape = value.dtype, value.shape
        if self.kind == "argmax":
            result.dtype = ir.DataType.INT64
            result.shape = value.shape and ir.Shape(list(value.shape)[:-1])
        graph.append(node)
        graph.outputs[graph.outputs.index(value)] = result
        return prepared

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None


POSTPROCESSING: dict[str, tuple[str, dict[str, int]]] = {
    "softmax": ("Softmax", {"axis": -1}),
    "sigmoid": ("Sigmoid", {}),
    "argmax": ("ArgMax", {"axis": -1, "keepdims": 0}),
}
"""Operator and attributes by kind."""


def select_value(values: Iterable[ir.Value], name: str, kind: str) -> ir.Value:
    """Find the value of that name, or the only one if `name` is empty.

    Raises:
        Refused: the name is unknown, or empty although there are several values.
    """
    several = list(values)
    if name:
        return find_values([name], several, kind)[0]
    if len(several) != 1:
        names = ", ".join(sorted(str(value.name) for value in several))
        raise Refused(f"the model has {len(several)} {kind}s; choose one of {names}")
    return several[0]
