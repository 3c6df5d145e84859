"""Task metrics of predictions against labels, each with its interval over items.

A metric is an entry in `autoopt.metrics` that names a function `(outputs, labels) -> result`. The result is one of:

- an array of booleans: the right answers, of which the metric is the share;
- an array with one number per item, of which the metric is the mean;
- a `Statistic` of all items.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from autoopt.errors import InputError
from autoopt.measure.intervals.items import bootstrap, mean_interval, paired_share, wilson
from autoopt.metrics import Estimate, get_metric

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
