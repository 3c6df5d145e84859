"""Reports on what a model contains and how long its parts take."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from autoopt.json_codec import to_json
from autoopt.model import io
from autoopt.model.examine import inspect_model
from autoopt.model.session import kernel_times, make_session
from autoopt.passes.base import Pass, Refused
from autoopt.passes.onnx_tools.graphs import op_counts
from autoopt.passes.verification.equivalence import Reference

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, TensorProto


class OperatorCounts(Pass):
    """Counts operators by type, including subgraphs; report `operator_counts`."""

    def run(self, model: ModelProto) -> None:
        self.context.reports["operator_counts"] = dict(sorted(op_counts(model).items()))


class ModelOverview(Pass):
    """Lists inputs, outputs, versions, operators, weights and the largest weights; report `model_overview`."""

    largest: Annotated[int, "number of the largest weights to list"] = 10

    def run(self, model: ModelProto) -> None:
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


class Profile(Pass):
    """Measures the time of each operator with onnxruntime's profiler; report `profile`.

    The report holds `runs`, `total_us` (of one run) and, by share, `operators` and `nodes` [{name, op_type, us}].
    Uses the first calibration item, otherwise synthetic inputs.
    """

    depends_on = "host"
    libraries = ("onnx", "onnxruntime")

    runs: Annotated[int, "measured runs, after one warm-up run"] = 10
    top: Annotated[int, "number of the slowest nodes to list"] = 20

    def run(self, model: ModelProto) -> None:
        path = io.save(model, self.context.work / "profiled")
        feeds = self._feeds(path, model)
        prefix = str(self.context.work / "profile")
        session = make_session(path, self.context.session_options, profile_prefix=prefix)
        for _ in range(self.runs + 1):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
        self.context.reports["profile"] = {"runs": self.runs, **summarize(events, self.top)}

    def _feeds(self, path: Path, model: ModelProto) -> dict[str, np.ndarray]:
        if self.context.calibration is not None:
            first = next(self.context.calibration(), None)
            if first is not None:
                return first
        reference = Reference(path, model)
        reference.run()
        if reference.feeds is None:
            raise Refused(f"the model cannot be run: {reference.failure}")
        return reference.feeds


def summarize(events: Iterable[Mapping[str, Any]], top: int) -> dict[str, object]:
    """Summarize the events of onnxruntime's profiler without the first run, in median microseconds of one run."""
    by_node: dict[tuple[str, str], float] = {}
    by_type: dict[str, float] = defaultdict(float)
    for (name, op_type), times in kernel_times(events).items():
        by_node[name, op_type] = median(times[1:] or times)
        by_type[op_type] += by_node[name, op_type]
    nodes = sorted(by_node.items(), key=lambda item: (-item[1], item[0]))
    types = sorted(by_type.items(), key=lambda item: (-item[1], item[0]))
    return {
        "total_us": round(sum(by_type.values()), 1),
        "operators": [{"op_type": op_type, "us": round(us, 1)} for op_type, us in types],
        "nodes": [{"name": name, "op_type": op_type, "us": round(us, 1)} for (name, op_type), us in nodes[:top]],
    }
