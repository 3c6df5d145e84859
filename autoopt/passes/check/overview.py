"""Reports on what a model contains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from autoopt.json_codec import to_json
from autoopt.passes.base import Pass
from autoopt.passes.onnx_tools.graphs import op_counts

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto


class OperatorCounts(Pass):
    """Counts operators by type, including those of subgraphs; report `operator_counts`."""

    analysis = True

    def run(self, model: ModelProto) -> None:
        self.context.reports["operator_counts"] = dict(sorted(op_counts(model).items()))


class ModelOverview(Pass):
    """Lists inputs, outputs, versions, operators, weights and the largest weights; report `model_overview`."""

    analysis = True

    largest: Annotated[int, "number of the largest weights to list"] = 10

    def run(self, model: ModelProto) -> None:
        from autoopt.model import io
        from autoopt.model.examine import inspect_model

        path = io.save(model, self.context.work / "overview")
        overview = inspect_model(model, path).to_json()
        weights = sorted(model.graph.initializer, key=lambda tensor: (-_byte_size(tensor), tensor.name))
        overview["largest_weights"] = [
            {"name": tensor.name, "shape": list(tensor.dims), "bytes": _byte_size(tensor)}
            for tensor in weights[: self.largest]
        ]
        self.context.reports["model_overview"] = to_json(overview)


def _byte_size(tensor: TensorProto) -> int:
    return len(tensor.raw_data) or int(tensor.ByteSize())
