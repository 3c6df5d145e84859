"""Changes of a model's inputs and outputs: names, element types, outputs that nobody needs, work before and after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias

from autoopt.model.lazy_imports import ir, ir_passes, np
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.onnx_tools.opsets import raised
from autoopt.passes.onnx_tools.values import find_values, give_types, given_inputs, remove_unused_inputs, taken_names

ElementType: TypeAlias = Literal[
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "int64", "bool"
]
NAMES: Final = {"float32": "FLOAT", "float64": "DOUBLE"}
"""ONNX's names of types that it calls differently."""
CAST_OPSET: Final = 13
"""Version of the ai.onnx operators for models that have none yet."""


class RenameInputsOutputs(Pass):
    """Renames inputs and outputs of the model, such as `{"x.1": "image"}`, but those of map type."""

    depends_on = "model"
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    names: Annotated[dict[str, str], "new names by present ones"]

    def run(self, model: ir.Model) -> ir.Model:
        values = find_values(self.names, [*given_inputs(model.graph), *model.graph.outputs])
        taken = taken_names(model)
        for value, new in zip(values, self.names.values(), strict=True):
            if new in taken and new != value.name:
                raise Refused(f"the model has a value {new!r} already")
            taken.add(new)
            value.name = new
        return model

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return {self.names.get(name, name): array for name, array in feeds.items()}


class RemoveOutputs(Pass):
    """Removes outputs that nobody needs, with all nodes and inputs that only they depend on."""

    touches = ("outputs",)
    depends_on = "model"
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    outputs: Annotated[list[str], "names of the outputs to remove"]

    def run(self, model: ir.Model) -> ir.Model:
        graph = model.graph
        removed = find_values(self.outputs, graph.outputs, "output")
        if len(removed) == len(graph.outputs):
            raise Refused("a model needs at least one output")
        for value in removed:
            graph.outputs.remove(value)
        model = apply_ir_passes(model, ir_passes.RemoveUnusedNodesPass())
        remove_unused_inputs(graph)
        return model

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None  # the outputs cannot be compared one by one


class ConvertInputOutputTypes(Pass):
    """Changes element types of inputs and outputs, such as `{"scores": "float16"}`, with a Cast inside the model."""

    touches = ("outputs",)
    depends_on = "model"
    tolerance = "lossy"
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    types: Annotated[dict[str, ElementType], "new types by the names of inputs and outputs"]

    def run(self, model: ir.Model) -> ir.Model | None:
        find_values(self.types, [*given_inputs(model.graph), *model.graph.outputs])
        kinds = {name: ir.DataType[NAMES.get(kind, kind.upper())] for name, kind in self.types.items()}
        if not give_types(model, kinds):
            return None
        if model.opset_imports.keys().isdisjoint(DEFAULT_DOMAINS):
            model.opset_imports[""] = CAST_OPSET
        return model


class PrependPreprocessing(Pass):
    """Makes the model take raw 8-bit images: `(image * scale - mean) / std` and the layout change become part of it.

    The input keeps its name and becomes uint8. Mean and std are per channel, in the order of the model's channels.
    """

    version = 2
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
