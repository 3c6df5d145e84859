"""What is in a model, how long its parts take, and where quantisation hurts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from autoopt.passes.base import Pass, Refused
from autoopt.passes.toolbox import op_counts
from autoopt.registry import Param, Unit

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


class Profile(Pass):
    """How long each operator takes, by onnxruntime's profiler; report `profile`.

    Holds `runs`, `total_us` (of a run) and, by share, `operators` and `nodes` [{name, op_type, us}].
    Uses the first calibration item, else synthetic feeds.
    """

    family: ClassVar[str] = "check"
    analysis = True
    host_bound = True
    libraries = ("onnx", "onnxruntime")

    runs: Annotated[int, "measured runs, after one to warm up"] = 10
    top: Annotated[int, "how many of the slowest nodes to list"] = 20

    def run(self, model: ModelProto) -> None:
        import onnxruntime as ort

        from autoopt.model import io
        from autoopt.model.session import make_options

        path = io.save(model, self.context.work / "profiled")
        feeds = self._feeds(path, model)
        options = make_options(self.context.session_options)
        options.enable_profiling = True
        options.profile_file_prefix = str(self.context.work / "profile")
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for _ in range(self.runs + 1):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
        self.context.reports["profile"] = {"runs": self.runs, **summarize(events, self.top)}

    def _feeds(self, path: Path, model: ModelProto) -> dict[str, Any]:
        from autoopt.passes.equivalence import Reference

        first = next(self.context.calibration(), None) if self.context.calibration is not None else None
        if first is not None:
            return first
        reference = Reference(path, model)
        reference.run()
        if reference.feeds is None:
            raise Refused(f"the model could not be run: {reference.failure}")
        return reference.feeds


def summarize(events: list[dict[str, Any]], top: int) -> dict[str, Any]:
    """Median microseconds of one run by node and by operator, from the events of onnxruntime's profile; the first run
    is left out."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            key = event["name"].removesuffix("_kernel_time"), event.get("args", {}).get("op_name", "")
            times[key].append(event["dur"])
    by_node = {key: median(found[1:] or found) for key, found in times.items()}
    by_op: dict[str, float] = defaultdict(float)
    for (_, op), us in by_node.items():
        by_op[op] += us
    return {
        "total_us": round(sum(by_op.values()), 1),
        "operators": [{"op_type": op, "us": round(us, 1)} for op, us in _slowest(by_op)],
        "nodes": [{"name": n, "op_type": op, "us": round(us, 1)} for (n, op), us in _slowest(by_node)[:top]],
    }


def _slowest(times: Mapping[Any, float]) -> list[tuple[Any, float]]:
    return sorted(times.items(), key=lambda item: (-item[1], item[0]))


class LayerPrecisionCompare(Pass):
    """How far every quantised value of a QDQ model is from the float value; report `layer_precision_compare`.

    Signal to quantisation noise ratios in dB, the worst first: `qdq_err` over its own QDQ pair and, where the float
    model `origin` is given, `xmodel_err` against that model; `weights` then holds those of the weights.
    """

    family: ClassVar[str] = "check"
    analysis = True
    needs_data = True
    libraries = ("onnx", "onnxruntime")

    origin: Annotated[str | None, Param("path"), "the float model it was made from"] = None
    samples: Annotated[int, Unit("items"), "calibration items compared"] = 16

    def run(self, model: ModelProto) -> None:
        from autoopt.model import io
        from autoopt.passes.quantize.common import Feeds
        from autoopt.passes.quantize.sensitivity import activation_errors

        if not op_counts(model)["DequantizeLinear"]:
            raise Refused("the model has no QDQ pairs to compare")
        work = self.context.work
        origin = io.load(Path(self.origin)) if self.origin else None
        errors = activation_errors(model, Feeds(self.context, self.samples), work, against=origin)
        kind = "xmodel_err" if origin is not None else "qdq_err"
        worst = sorted(errors.items(), key=lambda item: (item[1].get(kind, float("inf")), item[0]))
        report: dict[str, Any] = {
            "activations": [{"name": n, **{k: round(v, 3) for k, v in found.items()}} for n, found in worst]
        }
        if self.origin:
            report["weights"] = _weight_errors(self.origin, str(io.save(model, work / "weights")))
        self.context.reports["layer_precision_compare"] = report


def _ratio(before: Any, after: Any) -> float:
    """Signal to quantisation noise in dB; the library's own does not take single numbers."""
    import numpy as np
    from onnxruntime.quantization.qdq_loss_debug import compute_signal_to_quantization_noice_ratio

    return float(compute_signal_to_quantization_noice_ratio(np.atleast_1d(before), np.atleast_1d(after)))


def _weight_errors(origin: str, quantized: str) -> list[dict[str, Any]]:
    from onnxruntime.quantization.qdq_loss_debug import compute_weight_error, create_weight_matching

    from autoopt.passes.toolbox import quiet

    with quiet():
        errors = compute_weight_error(create_weight_matching(origin, quantized), _ratio)
    return [
        {"name": name, "sqnr_db": round(float(error), 3)}
        for name, error in sorted(errors.items(), key=lambda item: (item[1], item[0]))
    ]
