"""The worker functions of the meters: they take a `MeasureRequest` and return a `MeasureReply`, both as JSON."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TypeAlias

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue
from autoopt.measure.request import MeasureReply, MeasureRequest, Unmeasurable
from autoopt.metrics import Estimate
from autoopt.model.model_file import size_of

Measure: TypeAlias = Callable[[MeasureRequest], MeasureReply]
WorkerFunction: TypeAlias = Callable[[JsonObject], dict[str, JsonValue]]


def _meter(place: str) -> WorkerFunction:
    """The worker function for a meter `module:function` of this package, which is imported when it is first called.

    A user's mistake is no refusal by the runtime: after one, no other model can be measured either.
    """
    module, _, name = place.partition(":")

    def call(payload: JsonObject) -> dict[str, JsonValue]:
        measure: Measure = getattr(importlib.import_module(f"autoopt.measure.{module}"), name)
        try:
            return measure(MeasureRequest.from_json(payload)).with_unpaired_ratios().to_json()
        except InputError as error:
            raise Unmeasurable(error.what, where=error.where, remedy=error.remedy) from error

    return call


def measure_size(request: MeasureRequest) -> MeasureReply:
    """Measure the bytes of graph and external data."""
    parts = size_of(request.candidate.path)
    source_metrics = {}
    if request.source is not None:
        source_metrics["size"] = Estimate.exact(sum(size_of(request.source.path).values()))
    return MeasureReply({"size": Estimate.exact(sum(parts.values()))}, source_metrics, details=parts)


size = _meter("worker:measure_size")
latency = _meter("latency.meter:measure")
executed_graph = _meter("latency.executed_graph:measure")
fidelity = _meter("quality.fidelity:measure")
memory = _meter("memory:measure")
task = _meter("quality.meters:task")
custom = _meter("quality.meters:custom")


def check_source(payload: JsonObject) -> dict[str, list[str]]:
    """Look for signs that the source model and its data do not belong together: sentences, as `warnings` or `stops`."""
    from autoopt.measure.quality import source_check

    signs = source_check.signs(MeasureRequest.from_json(payload))
    return {
        "warnings": [sign.text for sign in signs if not sign.stops],
        "stops": [sign.text for sign in signs if sign.stops],
    }
