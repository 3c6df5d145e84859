"""Changes of a model's inputs and outputs: names, element types, outputs that nobody needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from autoopt.errors import did_you_mean
from autoopt.model.lazy_imports import ir_passes, onnx
from autoopt.model.tensors import names_of
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.casts import cast_input, cast_output
from autoopt.passes.onnx_tools.graphs import (
    caller_inputs,
    read_names,
    rename_inputs,
    rename_value,
    replace_items,
    walk_nodes,
)
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.onnx_tools.opsets import opset

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, ValueInfoProto

ElementType: TypeAlias = Literal[
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "int64", "bool"
]
_ONNX_NAMES: Final = {"float32": "FLOAT", "float64": "DOUBLE"}
"""ONNX's names of types that it calls differently."""
CAST_OPSET: Final = 13
"""Version of the ai.onnx operators for models that have none yet."""


class RenameInputsOutputs(Pass):
    """Renames inputs and outputs of the model, such as `{"x.1": "image"}`."""

    changes_outputs = True
    target_bound = False
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND

    names: Annotated[dict[str, str], "new names by present ones"]

    def run(self, model: ModelProto) -> ModelProto:
        values = [*caller_inputs(model), *model.graph.output]
        _check_names(self.names, values)
        graph = model.graph
        names = names_of((*graph.input, *graph.output, *graph.initializer))
        for node in graph.node:
            names.update((*node.input, *node.output))
        for old, new in self.names.items():
            if new in names and new != old:
                raise Refused(f"the model has a value {new!r} already")
            names.add(new)
            rename_inputs(walk_nodes(graph), {old: new})
            rename_value(graph, old, new)
            for value in (*graph.input, *graph.output):
                if value.name == old:
                    value.name = new
        return model

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return {self.names.get(name, name): array for name, array in feeds.items()}


class RemoveOutputs(Pass):
    """Removes outputs that nobody needs, with all nodes and inputs that only they depend on."""

    changes_outputs = True
    target_bound = False
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    outputs: Annotated[list[str], "names of the outputs to remove"]

    def run(self, model: ModelProto) -> ModelProto:
        _check_names(self.outputs, model.graph.output)
        remaining = [value for value in model.graph.output if value.name not in self.outputs]
        if not remaining:
            raise Refused("a model needs at least one output")
        replace_items(model.graph.output, remaining)
        model = to_proto(apply_ir_passes(to_ir(model), ir_passes.RemoveUnusedNodesPass()))
        read = read_names(model.graph)
        replace_items(model.graph.input, [value for value in model.graph.input if value.name in read])
        return model

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None  # the outputs cannot be compared one by one


class ConvertInputOutputTypes(Pass):
    """Changes element types of inputs and outputs, such as `{"scores": "float16"}`, with a Cast inside the model."""

    changes_outputs = True
    target_bound = False
    tolerance = "lossy"
    conflicts = RUNTIME_BOUND

    types: Annotated[dict[str, ElementType], "new types by the names of inputs and outputs"]

    def run(self, model: ModelProto) -> ModelProto | None:
        inputs, outputs = caller_inputs(model), list(model.graph.output)
        _check_names(self.types, [*inputs, *outputs])
        changed = False
        for values, convert in ((inputs, cast_input), (outputs, cast_output)):
            for value in values:
                name = self.types.get(value.name, "")
                kind = onnx.TensorProto.DataType.Value(_ONNX_NAMES.get(name, name.upper() or "UNDEFINED"))
                if name and kind != value.type.tensor_type.elem_type:
                    convert(model, value, kind)
                    changed = True
        if not changed:
            return None
        if opset(model) == 0:
            model.opset_import.add(domain="", version=CAST_OPSET)
        return model


def _check_names(names: Iterable[str], values: Iterable[ValueInfoProto]) -> None:
    """Refuse names that the model does not have."""
    model_names = [value.name for value in values]
    for name in names:
        if name not in model_names:
            hint = did_you_mean(name, model_names) or f"it has {', '.join(model_names)}"
            raise Refused(f"the model has no {name!r}; {hint}")
