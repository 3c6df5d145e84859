"""Inner values exposed as outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.structure.stages import known_values

if TYPE_CHECKING:
    from onnx import ModelProto


class AddCheckpoints(Pass):
    """Makes inner values outputs of the model too, to look at them.

    Values are given by name or by the operator types that make them.
    """

    family: ClassVar[str] = "structure"
    conflicts = LAST
    requires = ("shape_inference",)

    values: Annotated[list[str], "names of the values"] = []
    op_types: Annotated[list[str], "also all outputs of operators of these types"] = []

    def run(self, model: ModelProto) -> ModelProto | None:
        known_values(model, list(self.values))
        graph = model.graph
        types = {value.name: value for value in (*graph.value_info, *graph.input)}
        wanted = list(self.values)
        wanted += [name for node in graph.node if node.op_type in self.op_types for name in node.output if name]
        present = {value.name for value in graph.output}
        for name in dict.fromkeys(wanted):
            if name in present:
                continue
            if name not in types:
                raise Refused(f"the type of value {name!r} is not known; run shape_inference before")
            graph.output.add().CopyFrom(types[name])
        return model

    def feeds(self, feeds: dict[str, Any]) -> dict[str, Any] | None:
        return None
