"""Two models joined into one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.onnx_tools.opsets import at_least_opset, opset
from autoopt.registry import Param

if TYPE_CHECKING:
    from onnx import ModelProto


class Merge(Pass):
    """Appends a second model: its inputs are fed from this model's outputs.

    Inputs and outputs are matched by `io_map`, else by order. Both are brought to the higher of the two opsets.
    """

    family: ClassVar[str] = "structure"
    conflicts = LAST
    aliases = ("ComposeOnnxModels",)

    second: Annotated[str, Param("path"), "the model to append"]
    io_map: Annotated[list[list[str]], "pairs of an output of this model and an input of the second"] = []
    prefix: Annotated[str, "put before all names of the second model"] = "second_"

    def run(self, model: ModelProto) -> ModelProto:
        import onnx

        from autoopt.model import io

        other = io.load(Path(self.second))
        version = max(opset(model), opset(other))
        first, second = at_least_opset(model, version), at_least_opset(other, version)
        second = onnx.compose.add_prefix(second, self.prefix)
        first.ir_version = second.ir_version = max(first.ir_version, second.ir_version)
        pairs = self._pairs(first, second)
        same_types(first, second, pairs)
        try:
            return onnx.compose.merge_models(first, second, io_map=pairs)
        except Exception as error:  # ValueError, or the checker's own
            raise Refused(f"the models do not fit together: {error}") from error

    def _pairs(self, first: ModelProto, second: ModelProto) -> list[tuple[str, str]]:
        if self.io_map:
            return [(out, f"{self.prefix}{into}") for out, into in self.io_map]
        weights = {tensor.name for tensor in second.graph.initializer}
        inputs = [value.name for value in second.graph.input if value.name not in weights]
        return list(zip((value.name for value in first.graph.output), inputs, strict=False))

    def feeds(self, feeds: dict[str, Any]) -> dict[str, Any] | None:
        return None


def same_types(first: ModelProto, second: ModelProto, pairs: list[tuple[str, str]]) -> None:
    """Check that the outputs of `first` and the inputs of `second` that are joined have the same element types.

    Raises:
        Refused: two differ.
    """
    made = {value.name: value.type.tensor_type.elem_type for value in first.graph.output}
    taken = {value.name: value.type.tensor_type.elem_type for value in second.graph.input}
    for out, into in pairs:
        if out in made and into in taken and made[out] != taken[into]:
            raise Refused(f"output {out!r} and input {into!r} have different types")
