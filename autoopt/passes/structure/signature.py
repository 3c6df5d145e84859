"""Changes of a model's inputs and outputs: names, element types, outputs that nobody needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from autoopt.model.lazy_imports import ir, ir_passes
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.onnx_tools.values import find_values, give_types, given_inputs, taken_names

if TYPE_CHECKING:
    import numpy as np

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
        for unused in [each for each in graph.inputs if not each.uses() and not each.is_graph_output()]:
            graph.inputs.remove(unused)
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
