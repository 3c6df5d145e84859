"""Reports on what a model contains."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from autoopt.passes.base import Pass
from autoopt.passes.onnx_tools.graphs import op_counts

if TYPE_CHECKING:
    from onnx import ModelProto


class OperatorCounts(Pass):
    """How many operators of each kind the model has, subgraphs included; report `operator_counts`."""

    family: ClassVar[str] = "check"
    analysis = True

    def run(self, model: ModelProto) -> None:
        self.context.reports["operator_counts"] = dict(sorted(op_counts(model).items()))


class ModelOverview(Pass):
    """Inputs, outputs, versions, operators, weights and the largest of them; report `model_overview`."""

    family: ClassVar[str] = "check"
    analysis = True

    largest: Annotated[int, "how many of the largest weights to list"] = 10

    def run(self, model: ModelProto) -> None:
        from autoopt.model import io
        from autoopt.model.examine import inspect_model

        path = io.save(model, self.context.work / "overview")
        overview = inspect_model(model, path).to_json()
        sizes = sorted(
            ((_bytes(t), t.name, list(t.dims)) for t in model.graph.initializer), key=lambda s: (-s[0], s[1])
        )
        overview["largest_weights"] = [
            {"name": name, "shape": dims, "bytes": size} for size, name, dims in sizes[: self.largest]
        ]
        self.context.reports["model_overview"] = json.loads(json.dumps(overview))


def _bytes(tensor: Any) -> int:
    return len(tensor.raw_data) or int(tensor.ByteSize())
