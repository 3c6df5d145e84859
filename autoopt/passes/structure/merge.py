"""Two models joined into one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from autoopt.model import io
from autoopt.model.lazy_imports import onnx
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import caller_inputs
from autoopt.passes.onnx_tools.opsets import at_least_opset, opset
from autoopt.registry import Param

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto


class Merge(Pass):
    """Appends a second model, whose inputs are fed from this model's outputs.

    `io_map` matches outputs and inputs; without it they match by order. Both models are converted to the higher of
    the two opsets.
    """

    changes_outputs = True
    conflicts = RUNTIME_BOUND

    second: Annotated[str, Param("path"), "the model to append"]
    io_map: Annotated[list[list[str]], "pairs of an output of this model and an input of the second"] = []
    prefix: Annotated[str, "prefix for all names of the second model"] = "second_"

    def run(self, model: ModelProto) -> ModelProto:
        other = io.load(Path(self.second))
        version = max(opset(model), opset(other))
        first, second = at_least_opset(model, version), at_least_opset(other, version)
        second = onnx.compose.add_prefix(second, self.prefix)
        first.ir_version = second.ir_version = max(first.ir_version, second.ir_version)
        pairs = self._match(first, second)
        try:
            return onnx.compose.merge_models(first, second, io_map=pairs)
        except Exception as error:  # ValueError, or the checker's own
            raise Refused(f"the models do not fit together: {error}") from error

    def _match(self, first: ModelProto, second: ModelProto) -> list[tuple[str, str]]:
        """Pairs of an output of `first` and an input of `second`."""
        outputs = {value.name: value.type.tensor_type.elem_type for value in first.graph.output}
        inputs = {value.name: value.type.tensor_type.elem_type for value in second.graph.input}
        pairs = [(output, value.name) for output, value in zip(outputs, caller_inputs(second), strict=False)]
        if self.io_map:
            pairs = [(output, f"{self.prefix}{name}") for output, name in self.io_map]
        for output, name in pairs:
            if output in outputs and name in inputs and outputs[output] != inputs[name]:
                raise Refused(f"output {output!r} and input {name!r} have different types")
        return pairs

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None
