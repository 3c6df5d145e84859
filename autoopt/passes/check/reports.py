"""Reports on what a model contains, how long its parts take, and whether it is valid and computes the right values."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

from autoopt.json_codec import to_json
from autoopt.model import io
from autoopt.model.inspection import inspect_model
from autoopt.model.session import kernel_times, make_session
from autoopt.passes.base import Pass, Refused
from autoopt.passes.onnx_tools.graphs import op_counts
from autoopt.passes.verification.equivalence import Reference, find_defect
from autoopt.passes.verification.output_comparison import compare_outputs
from autoopt.registry import Param
from autoopt.space import Categorical

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


class Checker(Pass):
    """Runs onnx's checker with full shape inference. Refuses an invalid model, unless `strict` is off.

    The report `checker` holds `valid` and `message`.
    """

    strict: Annotated[bool, "end the chain if the model is invalid"] = True

    def run(self, model: ModelProto) -> None:
        message = find_defect(io.save(model, self.context.work / "checked"))
        self.context.reports["checker"] = {"valid": not message, "message": message}
        if message and self.strict:
            raise Refused(f"the checker rejects the model: {message}")


class EquivalenceCheck(Pass):
    """Runs the model on synthetic inputs and compares the outputs with a second opinion.

    The second opinion is `origin` (another model of the same signature) or, without it, the runtime without graph
    optimization (`oracle: runtime`) or onnx's reference implementation (`oracle: reference`, slow). The report
    `equivalence` holds `same`, `reason`, `max_abs_error` and `max_relative_error`.
    """

    libraries = ("onnx", "onnxruntime")

    origin: Annotated[str | None, Param("path"), "the model to compare with"] = None
    oracle: Annotated[
        Literal["runtime", "reference"], Categorical("runtime", "reference"), "source of the second opinion"
    ] = "runtime"
    tolerance_level: Annotated[Literal["lossless", "equal"], "same bits, or equal up to rounding"] = "equal"
    strict: Annotated[bool, "end the chain if the outputs differ"] = False

    def run(self, model: ModelProto) -> None:
        path = io.save(model, self.context.work / "compared")
        reference = Reference(path, model)
        if self.origin:
            reference = Reference(Path(self.origin), io.load(Path(self.origin)))
        reference.run(model)
        if reference.feeds is None or reference.outputs is None:
            reason = f"cannot be run: {reference.failure}"
            self.context.reports["equivalence"] = {"same": None, "reason": reason}
            return
        expected = reference.outputs
        if self.oracle == "reference":
            from onnx.reference import ReferenceEvaluator

            try:
                expected = list(ReferenceEvaluator(reference.model).run(None, reference.feeds))
            except Exception as error:  # NotImplementedError and others for operators that it does not know
                raise Refused(f"onnx's reference implementation cannot run the model: {error}") from error
        outputs = make_session(path, self.context.session_options).run(None, reference.feeds)
        result = compare_outputs(expected, outputs, self.tolerance_level, reference.spread_meter(0).spreads)
        self.context.reports["equivalence"] = {
            "same": result.status == "same",
            "reason": result.reason,
            "max_abs_error": result.max_abs_error,
            "max_relative_error": result.max_relative_error,
        }
        if self.strict and result.status != "same":
            raise Refused(f"not equivalent: {result.reason}")
