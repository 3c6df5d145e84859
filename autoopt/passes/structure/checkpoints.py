"""Inner values exposed as outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.structure.stages import check_values_exist

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto


class AddCheckpoints(Pass):
    """Adds inner values to the model's outputs, for inspection.

    Select values by name or by the operator types that produce them.
    """

    conflicts = RUNTIME_BOUND
    requires = ("shape_inference",)

    values: Annotated[list[str], "names of the values"] = []
    op_types: Annotated[list[str], "also add all outputs of operators of these types"] = []

    def run(self, model: ModelProto) -> ModelProto | None:
        check_values_exist(model, self.values)
        graph = model.graph
        types = {value.name: value for value in (*graph.value_info, *graph.input)}
        names = list(self.values)
        for node in graph.node:
            if node.op_type in self.op_types:
                names += [name for name in node.output if name]
        outputs = {value.name for value in graph.output}
        for name in dict.fromkeys(names):
            if name in outputs:
                continue
            if name not in types:
                raise Refused(f"the type of value {name!r} is unknown; run shape_inference first")
            graph.output.add().CopyFrom(types[name])
        return model

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None
