"""Metrics of a latency measurement: absolute values, paired ratios, and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from autoopt.json_codec import JsonObject
from autoopt.measure.intervals.items import bootstrap
from autoopt.measure.intervals.replicas import log_interval, widened
from autoopt.measure.latency.measurement import BEYOND, BEYOND_FEW, Measurement
from autoopt.measure.latency.pairs import select_pairs
from autoopt.measure.latency.subjects import Subject, statistic
from autoopt.measure.latency.timing import outliers
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.metrics import START_UP, Estimate

STATISTICS: Final = {
    "latency_p50": "p50",
    "latency_p90": "p90",
    "latency_p99": "p99",
    "latency_mean": "mean",
    "throughput": "mean",
    "cold_start": "cold_start",
    "first_inference": "first_inference",
}
"""Statistic of the times by metric."""
RARE = 0.01
"""Share of inferences up to which outliers are blamed on the operating system."""


def results(request: MeasureRequest, measurement: Measurement, batch_size: int, details: JsonObject) -> MeasureReply:
    """Compute the requested metrics of both models and their paired ratios from the pairs that count."""
    interrupted = len(measurement.pairs) - len(_counted(measurement, "p99"))
    details = {**details, "interrupted": interrupted}
    names = [name for name in request.metrics if name in STATISTICS] or list(STATISTICS)
    metrics = _absolute_values(measurement, measurement.candidate, names, batch_size)
    if request.is_source:
        ones = dict.fromkeys(names, Estimate.exact(1.0))
        return MeasureReply(metrics, metrics, ones, {**details, "identical": True})
    if measurement.source is None:
        return MeasureReply(metrics, details=details)
    source_metrics = _absolute_values(measurement, measurement.source, names, batch_size)
    ratios = {name: _ratio(measurement, measurement.source, name) for name in names}
    return MeasureReply(metrics, source_metrics, ratios, details)


def _absolute_values(
    measurement: Measurement, subject: Subject, names: Sequence[str], batch_size: int
) -> dict[str, Estimate]:
    """Estimate metrics in ms, throughput in items per second."""
    values: dict[str, Estimate] = {}
    for name in names:
        ns = _absolute_ns(measurement, subject, STATISTICS[name])
        value = Estimate(ns.value / 1e6, ns.low / 1e6, ns.high / 1e6)
        if name == "throughput":
            items = batch_size * 1e3
            value = Estimate(items / value.value, items / value.high, items / value.low)
        values[name] = value
    return values


def _absolute_ns(measurement: Measurement, subject: Subject, name: str) -> Estimate:
    if name in START_UP:
        return log_interval(np.log(_start_up_times(subject, name)).tolist(), beyond=BEYOND)
    if measurement.by_replica:
        return log_interval(np.log(_values_by_replica(measurement, subject, name)).tolist(), beyond=BEYOND)
    blocks = _blocks(measurement, subject, name)
    estimate = bootstrap(lambda indices: _pooled(blocks, indices, name), len(blocks))
    return widened(estimate, len(blocks), BEYOND_FEW)


def _ratio(measurement: Measurement, source: Subject, metric: str) -> Estimate:
    candidate, name = measurement.candidate, STATISTICS[metric]
    if name == "p50":
        return measurement.estimate()
    if name in START_UP:
        logs = np.log(_start_up_times(candidate, name)) - np.log(_start_up_times(source, name))
        return log_interval(logs.tolist(), beyond=BEYOND)
    if measurement.by_replica:
        ours = np.log(_values_by_replica(measurement, candidate, name))
        theirs = np.log(_values_by_replica(measurement, source, name))
        ratio = log_interval((ours - theirs).tolist(), beyond=BEYOND)
    else:
        mine, base = _blocks(measurement, candidate, name), _blocks(measurement, source, name)
        ratio = bootstrap(lambda indices: _pooled(mine, indices, name) / _pooled(base, indices, name), len(mine))
        ratio = widened(ratio, len(mine), BEYOND_FEW)
    if metric == "throughput":
        return Estimate(1 / ratio.value, 1 / ratio.high, 1 / ratio.low)
    return ratio


def _start_up_times(subject: Subject, name: str) -> list[float]:
    """Return the start-up times of the sessions; the very first also pays for reading the file and loading code."""
    times = [float(getattr(replica, name)) for replica in subject.replicas]
    if len(times) >= 3:
        return times[1:]
    return times


def _counted(measurement: Measurement, name: str) -> list[int]:
    """Select the indices of the pairs that count for a statistic.

    For p50 these are the undisturbed pairs. A model's own occasional slowness is part of every other statistic, so
    there only pairs in which the thread was preempted are set aside.
    """
    pairs = measurement.pairs
    if name != "p50":
        pairs = [pair._replace(candidate=1.0, source=1.0) for pair in pairs]
    return select_pairs(pairs)


def _blocks(measurement: Measurement, subject: Subject, name: str) -> list[np.ndarray]:
    """Return a subject's blocks that count, in the order of the pairs."""
    blocks_by_replica = [iter(replica.blocks) for replica in subject.replicas]
    blocks = [next(blocks_by_replica[pair.replica]) for pair in measurement.pairs]
    return [blocks[number] for number in _counted(measurement, name)]


def _values_by_replica(measurement: Measurement, subject: Subject, name: str) -> list[float]:
    pools: dict[int, list[np.ndarray]] = {}
    for number, times in zip(_counted(measurement, name), _blocks(measurement, subject, name), strict=True):
        pools.setdefault(measurement.pairs[number].replica, []).append(times)
    return [_value(np.concatenate(pool), name) for pool in pools.values()]


def _pooled(blocks: Sequence[np.ndarray], indices: np.ndarray, name: str) -> float:
    return _value(np.concatenate([blocks[index] for index in indices]), name)


def _value(times: np.ndarray, name: str) -> float:
    # Outliers that are not rare are the model's own behaviour, and belong to the mean.
    if name == "mean" and outliers(times).mean() > RARE:
        return float(times.mean())
    return statistic(times, name)
