"""Metrics that a user script defines.

    @register_metric("word_accuracy", unit="fraction", direction="maximize")
    def word_accuracy(outputs, labels): ...

The function gets the model's outputs (one array per output, items along axis 0) and the labels (None without labels).
It returns one number, or one number per item: then the metric is their mean, with an interval over the items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from autoopt.errors import AutooptError, InputError, did_you_mean
from autoopt.measure.intervals.items import mean_interval, paired_share
from autoopt.metrics import METRICS, Direction, Estimate, Metric
from autoopt.script import line_in

Function = TypeVar("Function", bound=Callable[..., object])

_registered: dict[str, tuple[Metric, Callable[..., object]]] = {}


def register_metric(
    name: str, *, unit: str = "1", direction: Direction = "maximize", summary: str = ""
) -> Callable[[Function], Function]:
    """Register a function as a metric.

    Raises:
        InputError: a built-in metric or another script's metric has that name.
    """

    def decorate(function: Function) -> Function:
        # Reading the same script again replaces its metrics.
        earlier = _registered[name][1] if name in _registered else function
        if name in METRICS or earlier.__code__.co_filename != function.__code__.co_filename:
            raise InputError(f"metric {name!r} is registered twice")
        first_line = (function.__doc__ or name).strip().splitlines()[0]
        metric = Metric(name, unit, direction, "custom", summary or first_line)
        _registered[name] = (metric, function)
        function.metric = metric  # type: ignore[attr-defined]  # lets a reader of the script find it
        return function

    return decorate


def registered() -> dict[str, Metric]:
    """List the metrics of the scripts that this process has read."""
    return {name: metric for name, (metric, _) in _registered.items()}


def values(name: str, outputs: Sequence[object], labels: np.ndarray | None) -> np.ndarray:
    """Call the function of a metric: a 0-d array for one number, else one number per item.

    Raises:
        InputError: there is no such metric, or it returned something else or NaN.
    """
    if name not in _registered:
        raise InputError(f"no custom metric {name!r}", remedy=did_you_mean(name, _registered) or "see register_metric")
    function = _registered[name][1]
    try:
        numbers = np.asarray(function(outputs, labels), np.float64)
    except (AutooptError, MemoryError):
        raise
    except Exception as error:  # whatever the user's code raises is the user's mistake
        where = line_in(function.__code__.co_filename, error)
        raise InputError(f"metric {name!r} raised {type(error).__name__}: {error}", where=where) from error
    if numbers.ndim > 1 or numbers.size == 0:
        raise InputError(f"custom metric {name!r} must return one number, or one per item")
    if np.isnan(numbers).any():
        code = function.__code__
        raise InputError(f"metric {name!r} returned NaN", where=f"{code.co_filename}:{code.co_firstlineno}")
    return np.asarray(numbers)


def estimate(numbers: np.ndarray) -> Estimate:
    """Estimate the mean of the values with its interval; exact if there is only one."""
    if numbers.ndim == 0 or len(numbers) == 1:
        return Estimate.exact(float(numbers.reshape(-1)[0]))
    return mean_interval(numbers)


def drop(direction: Direction, candidate: np.ndarray, source: np.ndarray) -> Estimate | None:
    """Estimate how much worse the candidate is on the same items, in pairs; None if there are no items to pair.

    Values that are all 0 or 1 are right and wrong answers.
    """
    if candidate.ndim == 0 or candidate.shape != source.shape:
        return None
    if np.isin([candidate, source], (0, 1)).all():
        better, worse = (source, candidate) if direction == "maximize" else (candidate, source)
        return paired_share(int(np.sum(better > worse)), int(np.sum(worse > better)), len(source))
    difference = source - candidate if direction == "maximize" else candidate - source
    if not math.isfinite(float(difference.sum())):
        return None
    return mean_interval(difference)
