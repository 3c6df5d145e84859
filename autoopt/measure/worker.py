"""The worker functions of the meters: they take a `MeasureRequest` and return a `MeasureReply`, both as JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeAlias

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue
from autoopt.measure.request import MeasureReply, MeasureRequest, Unmeasurable
from autoopt.metrics import Estimate

Measure: TypeAlias = Callable[[MeasureRequest], MeasureReply]
WorkerFunction: TypeAlias = Callable[[JsonObject], dict[str, JsonValue]]


def _worker_function(measure: Measure) -> WorkerFunction:
    """Add JSON to a meter, and mark the user's mistakes.

    A user's mistake is no refusal by the runtime: after one, no other model can be measured either.
    """

    @wraps(measure)
    def call(payload: JsonObject) -> dict[str, JsonValue]:
        try:
            return measure(MeasureRequest.from_json(payload)).with_unpaired_ratios().to_json()
        except InputError as error:
            raise Unmeasurable(error.what, where=error.where, remedy=error.remedy) from error

    return call


@_worker_function
def size(request: MeasureRequest) -> MeasureReply:
    """Measure the bytes of graph and external data."""
    from autoopt.model.model_file import size_of

    parts = size_of(request.candidate.path)
    source_metrics = {}
    if request.source is not None:
        source_metrics["size"] = Estimate.exact(sum(size_of(request.source.path).values()))
    return MeasureReply({"size": Estimate.exact(sum(parts.values()))}, source_metrics, details=parts)


@_worker_function
def latency(request: MeasureRequest) -> MeasureReply:
    """Measure times of inference and of session creation, and throughput."""
    from autoopt.measure.latency import profiles

    return profiles.measure(request)


@_worker_function
def executed_graph(request: MeasureRequest) -> MeasureReply:
    """Compute the digests of the graphs that the runtime executes for candidate and source."""
    from autoopt.measure.latency import executed_graph

    return executed_graph.measure(request)


@_worker_function
def fidelity(request: MeasureRequest) -> MeasureReply:
    """Measure the distance of the outputs from the source model's."""
    from autoopt.measure.quality import source_comparison

    return source_comparison.measure(request)


@_worker_function
def memory(request: MeasureRequest) -> MeasureReply:
    """Measure peak memory and arena, each model in fresh processes."""
    from autoopt.measure import memory as meter

    return meter.measure(request)


@_worker_function
def custom(request: MeasureRequest) -> MeasureReply:
    """Measure the metrics that the user's script defines."""
    from autoopt.measure.quality import meters

    return meters.custom(request)


def check_source(payload: JsonObject) -> dict[str, list[str]]:
    """Look for signs that the source model and its data do not belong together: sentences, as `warnings` or `stops`."""
    from autoopt.measure.quality import source_check

    signs = source_check.signs(MeasureRequest.from_json(payload))
    return {
        "warnings": [sign.text for sign in signs if not sign.stops],
        "stops": [sign.text for sign in signs if sign.stops],
    }


@_worker_function
def task(request: MeasureRequest) -> MeasureReply:
    """Measure task metrics on labelled data."""
    from autoopt.measure.quality import meters

    return meters.task(request)
