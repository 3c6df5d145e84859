"""Task metrics of predictions against labels, each with its interval over items, and the metrics of user scripts.

A task metric is an entry in `autoopt.metrics` that names a function `(outputs, labels) -> result`. The result is one
of:

- an array of booleans: the right answers, of which the metric is the share;
- an array with one number per item, of which the metric is the mean;
- a `Statistic` of all items.

A user script defines others:

    @register_metric("word_accuracy", unit="fraction", direction="maximize")
    def word_accuracy(outputs, labels): ...

Its function gets the model's outputs (one array per output, items along axis 0) and the labels (None without labels).
It returns one number, or one number per item: then the metric is their mean, with an interval over the items.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np

from autoopt.errors import AutooptError, InputError, did_you_mean
from autoopt.measure.intervals.items import bootstrap, mean_interval, paired_share, wilson
from autoopt.metrics import METRICS, Direction, Estimate, Metric, get_metric
from autoopt.script import line_in

Outputs: TypeAlias = Sequence[object]
"""One value per model output: an array with items along axis 0, or a list of items if their shapes differ."""
Statistic: TypeAlias = Callable[[np.ndarray], float]
"""A function of item indices. Raises ValueError where it is undefined for these items."""
TaskMetric: TypeAlias = Callable[[Outputs, np.ndarray], "np.ndarray | Statistic"]


def measure(name: str, outputs: Outputs, labels: np.ndarray) -> Estimate:
    """Estimate a task metric of a model's outputs.

    Raises:
        InputError: the metric is unknown, or the outputs do not fit the labels.
    """
    result = task_metric(name)(outputs, labels)
    if not isinstance(result, np.ndarray):
        return bootstrap(result, len(labels))
    if _is_share(result):
        return wilson(float(result.sum()), result.size)
    return mean_interval(_mean_per_item(result))


def drop(name: str, candidate: Outputs, source: Outputs, labels: np.ndarray) -> Estimate:
    """Estimate how much worse the candidate is than the source on the same items, with a paired interval.

    Positive is worse. Where outputs differ but no item's result changed, the interval of a share is not empty: it is
    that of 0 changes in as many items, because the next item may change.

    Raises:
        InputError: as `measure`.
    """
    metric = get_metric(name)
    sign = 1.0 if metric.direction == "maximize" else -1.0
    compute = task_metric(name)
    result, source_result = compute(candidate, labels), compute(source, labels)
    if isinstance(result, np.ndarray) and isinstance(source_result, np.ndarray):
        if _is_share(result):
            lost, gained = source_result & ~result, result & ~source_result
            return paired_share(int(np.sum(lost)), int(np.sum(gained)), len(result))
        estimate = mean_interval(sign * (_mean_per_item(source_result) - _mean_per_item(result)))
    else:
        assert not isinstance(result, np.ndarray)
        assert not isinstance(source_result, np.ndarray)
        estimate = bootstrap(lambda indices: sign * (source_result(indices) - result(indices)), len(labels))
    if metric.unit == "fraction" and estimate == Estimate.exact(0.0):
        return paired_share(0, 0, len(labels))
    return estimate


def task_metric(name: str) -> TaskMetric:
    """Load the function of a task metric.

    Raises:
        InputError: there is no such task metric.
    """
    metric = get_metric(name)
    if metric.kind != "task":
        raise InputError(f"{name!r} is not a task metric")
    module, _, function = metric.function.partition(":")
    return partial(getattr(importlib.import_module(module), function), **metric.arguments)


def _is_share(result: np.ndarray) -> bool:
    return result.dtype == bool and result.ndim == 1


def _mean_per_item(values: np.ndarray) -> np.ndarray:
    if values.ndim == 1:
        return values
    return np.asarray(values.reshape(len(values), -1).mean(axis=1))


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


def script_values(name: str, outputs: Sequence[object], labels: np.ndarray | None) -> np.ndarray:
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


def script_estimate(numbers: np.ndarray) -> Estimate:
    """Estimate the mean of the values with its interval; exact if there is only one."""
    if numbers.ndim == 0 or len(numbers) == 1:
        return Estimate.exact(float(numbers.reshape(-1)[0]))
    return mean_interval(numbers)


def script_drop(direction: Direction, candidate: np.ndarray, source: np.ndarray) -> Estimate | None:
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
