"""Time per operator."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from autoopt.passes.base import Pass, Refused

if TYPE_CHECKING:
    from onnx import ModelProto


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
        from autoopt.passes.verification.equivalence import Reference

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
