"""Metrics of a user script.

    @register_metric("word_accuracy", unit="fraction", direction="maximize")
    def word_accuracy(outputs, labels): ...

The function gets the model's outputs (one array per output, items along axis 0) and the labels (None without them)
and returns one number, or one number per item: then the metric is their mean, with an interval over the items.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np

from autoopt.errors import InputError, did_you_mean
from autoopt.measure.intervals.items import mean_interval
from autoopt.metrics import METRICS, Direction, Estimate, Metric

Function: TypeAlias = Callable[[list[Any], Any], Any]
Taken = TypeVar("Taken", bound=Callable[..., Any])

_registered: dict[str, tuple[Metric, Function]] = {}


def register_metric(
    name: str, *, unit: str = "1", direction: Direction = "maximize", summary: str = ""
) -> Callable[[Taken], Taken]:
    """Make a function known as a metric.

    Raises:
        InputError: a built-in metric has that name, or another script's.
    """

    def decorate(function: Taken) -> Taken:
        known = _registered.get(name)
        elsewhere = known is not None and known[1].__code__.co_filename != function.__code__.co_filename
        if name in METRICS or elsewhere:
            raise InputError(f"metric {name!r} is registered twice")
        first_line = (function.__doc__ or name).strip().splitlines()[0]
        metric = Metric(name, unit, direction, "custom", summary or first_line)
        _registered[name] = (metric, function)
        function.metric = metric  # type: ignore[attr-defined]  # so that whoever reads the script finds it
        return function

    return decorate


def registered() -> dict[str, Metric]:
    """The metrics of the scripts that this process has read."""
    return {name: metric for name, (metric, _) in _registered.items()}


def values(name: str, outputs: list[Any], labels: Any) -> np.ndarray[Any, Any]:
    """What the function of that metric returns: one number, or one per item.

    Raises:
        InputError: no such metric, or it returned something else.
    """
    if name not in _registered:
        raise InputError(f"no custom metric {name!r}", remedy=did_you_mean(name, _registered) or "see register_metric")
    try:
        found = np.asarray(_registered[name][1](outputs, labels), np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"custom metric {name!r}: {type(error).__name__}: {error}") from error
    if found.ndim > 1 or found.size == 0:
        raise InputError(f"custom metric {name!r} must return one number, or one per item")
    return found


def estimate(found: np.ndarray[Any, Any]) -> Estimate:
    """The mean of the values with its interval; exact where there is one."""
    if found.ndim == 0 or len(found) == 1:
        return Estimate.exact(float(found.reshape(-1)[0]))
    return mean_interval(found)


def drop(metric: Metric, ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> Estimate | None:
    """How much worse `ours` is on the same items, with a paired interval; None where there are no items to pair."""
    if ours.ndim == 0 or ours.shape != theirs.shape or not math.isfinite(float((ours - theirs).sum())):
        return None
    sign = 1.0 if metric.direction == "maximize" else -1.0
    return mean_interval(sign * (theirs - ours))
