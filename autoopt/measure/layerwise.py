"""Two models compared: layer by layer, to find where their values begin to differ, and by their operators' times."""

from __future__ import annotations

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from autoopt.data.dataset import Feed
from autoopt.data.scores import class_axis
from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue, to_json
from autoopt.measure.inference import ModelRunner, evaluation_data
from autoopt.measure.quality.fidelity import NUMBERS, as_array, compare_output
from autoopt.measure.request import MeasureRequest
from autoopt.model import io
from autoopt.model.admit import admit_model
from autoopt.model.model_file import ModelFile
from autoopt.model.session import kernel_times
from autoopt.model.tensors import return_values
from autoopt.results.model import OperatorTime, OperatorTimes

ITEMS = 4
GROUP = 64
"""Inner tensors fetched in one session: all at once would hold every activation of a large model."""
METRICS = ("cosine", "relative_l2", "max_abs_error")
OUTPUT_METRICS = (*METRICS, "top1_agreement", "kl")
SIMILAR = 0.999
"""Cosine below which two tensors count as different."""


@dataclass(frozen=True)
class TensorDistance:
    """Distances of one tensor that both models compute; `op` is the operator that computes it in the first."""

    name: str
    op: str
    shape: tuple[int, ...]
    cosine: float
    relative_l2: float
    max_abs_error: float


@dataclass(frozen=True)
class OutputDistance:
    """Distances of one output of the two models; None for metrics that have no meaning for it."""

    name: str
    shape: tuple[int, ...]
    cosine: float | None
    relative_l2: float | None
    max_abs_error: float | None
    top1_agreement: float | None
    kl: float | None
    note: str = ""
    """The reason why it cannot be compared as numbers."""


@dataclass(frozen=True)
class ModelComparison:
    """Two models compared output by output and layer by layer."""

    items: int
    outputs: tuple[OutputDistance, ...]
    """All outputs, by position."""
    tensors: tuple[TensorDistance, ...]
    """The tensors whose names both models have."""
    only_source: int
    """Number of tensors that the candidate lacks."""
    only_candidate: int
    first_different: str | None
    """The first tensor whose cosine is below 0.999."""


def compare_models(payload: JsonObject) -> dict[str, JsonValue]:
    """Compare two models: a worker function from JSON of a `MeasureRequest` to JSON of a `ModelComparison`.

    Raises:
        NotAdmitted: a model breaks a rule of admission.
        InputError: the models have different numbers of outputs.
        Exception: onnxruntime's, where it refuses a model.
    """
    request = MeasureRequest.from_json(payload)
    source = request.source
    if source is None:
        raise InputError("two models are needed to compare")
    with tempfile.TemporaryDirectory(prefix="autoopt-") as folder:
        source = _admitted(source, Path(folder, "source"))
        candidate = _admitted(request.candidate, Path(folder, "candidate"))
        request = replace(request, candidate=candidate, source=source)
        source_ops, candidate_ops = _ops_by_tensor(source), _ops_by_tensor(candidate)
        data = evaluation_data(request)
        feeds = [feed for feed, _ in data.feeds(1, request.settings.samples or ITEMS)]
        common = {name: op for name, op in source_ops.items() if name in candidate_ops}
        tensors = list(_compare_tensors(request, source, common, feeds))
        comparison = ModelComparison(
            items=len(feeds),
            outputs=tuple(_compare_outputs(request, source, feeds)),
            tensors=tuple(tensors),
            only_source=len(source_ops) - len(common),
            only_candidate=len(candidate_ops) - len(common),
            first_different=next((tensor.name for tensor in tensors if tensor.cosine < SIMILAR), None),
        )
        return to_json(comparison)


def _admitted(model: ModelFile, folder: Path) -> ModelFile:
    """Copy a model into `folder`, so that nothing outside of its own folder is read."""
    copy = admit_model(Path(model.path), folder).graph
    if copy.suffix == ".ort":
        raise InputError("is in the ORT format, which hides its layers", where=model.path, remedy="name the .onnx file")
    return replace(model, path=str(copy))


def _compare_outputs(request: MeasureRequest, source: ModelFile, feeds: Sequence[Feed]) -> Iterator[OutputDistance]:
    source_runner, runner = ModelRunner.open(source, request), ModelRunner.open(request.candidate, request)
    if len(source_runner.outputs) != len(runner.outputs):
        raise InputError(f"the models have {len(source_runner.outputs)} and {len(runner.outputs)} outputs")
    source_items = list(map(source_runner.run, feeds))
    items = list(map(runner.run, feeds))
    for index, name in enumerate(source_runner.outputs):
        arrays = [as_array(item[index]) for item in items]
        source_arrays = [as_array(item[index]) for item in source_items]
        axis = class_axis(source_arrays)
        values: dict[str, float | None] = {}
        for metric in OUTPUT_METRICS:
            estimate = compare_output(metric, arrays, source_arrays, -1 if axis is None else axis)
            values[metric] = None if estimate is None else estimate.value
        yield OutputDistance(name, tuple(source_arrays[0].shape), **values, note=_note(arrays, source_arrays))


def _note(arrays: Sequence[np.ndarray], source_arrays: Sequence[np.ndarray]) -> str:
    """The reason why outputs cannot be compared as numbers; empty if they can."""
    if any(array.dtype.kind not in NUMBERS for array in (*arrays, *source_arrays)):
        return "not numbers"
    for one, other in zip(arrays, source_arrays, strict=True):
        if one.shape != other.shape:
            return " and ".join("x".join(map(str, array.shape)) or "scalar" for array in (other, one))
    return ""


def _ops_by_tensor(model: ModelFile) -> dict[str, str]:
    """List the tensors that the main graph's nodes compute, in order, with their operators."""
    ops: dict[str, str] = {}
    for node in io.parse(model.path).graph.node:
        if node.op_type != "Constant":
            ops.update({name: node.op_type for name in node.output if name})
    return ops


def _compare_tensors(
    request: MeasureRequest, source: ModelFile, ops: Mapping[str, str], feeds: Sequence[Feed]
) -> Iterator[TensorDistance]:
    """Yield the distances of all common tensors that are numbers of the same shape in both models."""
    names = list(ops)
    for start in range(0, len(names), GROUP):
        group = names[start : start + GROUP]
        source_values = _fetch(request, source, group, feeds)
        values = _fetch(request, request.candidate, group, feeds)
        for name in group:
            arrays, source_arrays = _arrays(values.get(name, ())), _arrays(source_values.get(name, ()))
            if len(arrays) == len(source_arrays) == len(feeds) and not _note(arrays, source_arrays):
                estimates = [compare_output(metric, arrays, source_arrays) for metric in METRICS]
                cosine, relative_l2, largest = (estimate.value if estimate else 0.0 for estimate in estimates)
                yield TensorDistance(name, ops[name], source_arrays[0].shape, cosine, relative_l2, largest)


def _arrays(values: Sequence[object]) -> list[np.ndarray]:
    return [value for value in values if isinstance(value, np.ndarray)]


def _fetch(
    request: MeasureRequest, model: ModelFile, names: list[str], feeds: Sequence[Feed]
) -> dict[str, list[object]]:
    """Compute the values of inner tensors for each feed.

    Tensors that cannot be outputs (a sequence without a type) are left out. Halving the group finds them.
    """
    proto = io.load(model.path)
    return_values(proto.graph, names)
    values: dict[str, list[object]] = {name: [] for name in names}
    try:
        with tempfile.TemporaryDirectory(prefix="autoopt-") as folder:
            path = io.save(proto, Path(folder))
            # Optimizations would remove inner tensors.
            runner = ModelRunner.open(ModelFile(str(path), {"graph_optimization_level": "disable"}), request)
            for feed in feeds:
                item = dict(zip(runner.outputs, runner.run(feed), strict=True))
                for name in names:
                    values[name].append(item[name])
    except Exception:
        if len(names) == 1:
            return {}
        half = len(names) // 2
        return _fetch(request, model, names[:half], feeds) | _fetch(request, model, names[half:], feeds)
    return values


MIN_INFERENCES: Final = 3
"""Inferences of each model beside the first one, which is not counted."""
MAX_INFERENCES: Final = 30
"""Inferences of each model at most; small ones would do thousands within the time."""
SECONDS: Final = 1.5
"""Time after which no further inference begins."""


def operator_times(payload: JsonObject) -> dict[str, JsonValue]:
    """Profile source and candidate in turns: a worker function from JSON of a `MeasureRequest` to that of the times.

    Raises:
        InputError: There is no source model, or no inputs can be made for it.
        Exception: onnxruntime's, where it refuses a model.
    """
    request = MeasureRequest.from_json(payload)
    if request.source is None:
        raise InputError("two models are needed to compare")
    feed, _ = next(evaluation_data(request).feeds())
    with tempfile.TemporaryDirectory() as folder:
        runners: list[ModelRunner] = []
        for name, model in (("source", request.source), ("candidate", request.candidate)):
            runners.append(ModelRunner.open(model, request, profile_prefix=str(Path(folder, name))))
        deadline, inferences = time.monotonic() + SECONDS, 0
        while inferences <= MIN_INFERENCES or (inferences <= MAX_INFERENCES and time.monotonic() < deadline):
            for runner in runners:
                runner.run(feed)
            inferences += 1
        found = []
        for runner in runners:
            events = json.loads(Path(runner.session.end_profiling()).read_text(encoding="utf-8"))
            found.append(by_operator(events, inferences))
    source, candidate = found
    op_types = source.keys() | candidate.keys()
    rows = [OperatorTime(op_type, source.get(op_type), candidate.get(op_type)) for op_type in op_types]
    rows.sort(key=lambda row: (-abs(row.change), row.op_type))
    return to_json(OperatorTimes(inferences - 1, tuple(rows)))


def by_operator(events: Iterable[Mapping[str, Any]], inferences: int) -> dict[str, float]:
    """Sum up the events of onnxruntime's profiler by type of operator.

    The first of the session's inferences is not counted.

    Returns:
        Milliseconds of one inference. A node counts with the median of its times, as often as it runs.
    """
    totals: defaultdict[str, float] = defaultdict(float)
    for (_, op_type), times in kernel_times(events).items():
        per_inference = len(times) / inferences
        first = round(per_inference)
        totals[op_type] += median(times[first:] or times) * per_inference
    return {op_type: round(total / 1000, 5) for op_type, total in totals.items()}
