"""The meters' worker functions: JSON in, JSON out; see `autoopt.measure.meters.Meter`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeAlias

from autoopt.errors import InputError
from autoopt.measure.request import Json, Request, Unmeasurable, answer
from autoopt.metrics import Estimate

Function: TypeAlias = Callable[[Mapping[str, Any]], Json]


def _meter(function: Function) -> Function:
    """The user's mistakes, told from what the runtime refuses: with the first no other model can be measured either."""

    @wraps(function)
    def measured(payload: Mapping[str, Any]) -> Json:
        try:
            return function(payload)
        except InputError as error:
            raise Unmeasurable(error.what, where=error.where, remedy=error.remedy) from error

    return measured


@_meter
def size(payload: Mapping[str, Any]) -> Json:
    """Bytes of graph and external data."""
    from autoopt.model.storage import size_of

    request = Request.parse(payload)
    parts = size_of(request.candidate.path)
    source = {} if request.source is None else {"size": Estimate.exact(sum(size_of(request.source.path).values()))}
    return answer({"size": Estimate.exact(sum(parts.values()))}, source, details=parts)


@_meter
def latency(payload: Mapping[str, Any]) -> Json:
    """Times of inference, of session creation, and throughput."""
    from autoopt.measure.latency import profiles

    found = profiles.measure(Request.parse(payload))
    return answer(found.metrics, found.source, found.ratios, found.details)


@_meter
def fidelity(payload: Mapping[str, Any]) -> Json:
    """Distance of the outputs from the source model's."""
    from autoopt.measure.quality import meters as quality

    return quality.fidelity(Request.parse(payload))


@_meter
def memory(payload: Mapping[str, Any]) -> Json:
    """Peak memory and arena, each model in fresh processes."""
    from autoopt.measure import memory as memory_

    return memory_.memory(payload)


@_meter
def custom(payload: Mapping[str, Any]) -> Json:
    """Metrics that the user's script defines."""
    from autoopt.measure.quality import meters as quality

    return quality.custom(Request.parse(payload))


@_meter
def task(payload: Mapping[str, Any]) -> Json:
    """Task metrics on labelled data."""
    from autoopt.measure.quality import meters as quality

    return quality.task(Request.parse(payload))
