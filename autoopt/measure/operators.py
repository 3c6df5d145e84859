"""The time of each kind of operator in the source model and in a candidate, by the runtime's own profiler."""

from __future__ import annotations

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue, to_json
from autoopt.measure.inference.batches import evaluation_data
from autoopt.measure.inference.runner import ModelRunner
from autoopt.measure.request import MeasureRequest
from autoopt.model.session import kernel_times
from autoopt.results.measurement import OperatorTime, OperatorTimes

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
        source, candidate = (_read(runner, inferences) for runner in runners)
    op_types = source.keys() | candidate.keys()
    rows = [OperatorTime(op_type, source.get(op_type), candidate.get(op_type)) for op_type in op_types]
    rows.sort(key=lambda row: (-abs(row.change), row.op_type))
    return to_json(OperatorTimes(inferences - 1, tuple(rows)))


def _read(runner: ModelRunner, inferences: int) -> dict[str, float]:
    """End the profile of a session; the milliseconds of each type of operator in one inference."""
    events = json.loads(Path(runner.session.end_profiling()).read_text(encoding="utf-8"))
    return by_operator(events, inferences)


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
