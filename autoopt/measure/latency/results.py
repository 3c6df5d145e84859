"""Metrics of a latency measurement: absolute values, paired ratios, and their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from autoopt.json_codec import JsonObject
from autoopt.measure.contention import DETAIL as CONTENTION
from autoopt.measure.contention import error_of
from autoopt.measure.intervals.items import bootstrap
from autoopt.measure.intervals.pooling import BEYOND
from autoopt.measure.intervals.replicas import log_interval, widened
from autoopt.measure.latency.comparison import Comparison
from autoopt.measure.latency.machine import QUIET, Load
from autoopt.measure.latency.pairs import Pair, select_pairs
from autoopt.measure.latency.subjects import QUANTILES, Subject, statistic
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


def results(
    request: MeasureRequest, comparison: Comparison, batch_size: int, details: JsonObject, load: Load = QUIET
) -> MeasureReply:
    """Compute the requested metrics of both models and their paired ratios from the pairs that count."""
    interrupted = len(comparison.pairs) - len(_counted(comparison, "p99"))
    details = {**details, "interrupted": interrupted, CONTENTION: load.contention}
    names = [name for name in request.metrics if name in STATISTICS] or list(STATISTICS)
    metrics = _absolute_values(comparison, comparison.candidate, names, batch_size)
    if request.is_source:
        ones = dict.fromkeys(names, Estimate.exact(1.0))
        return MeasureReply(metrics, metrics, ones, {**details, "identical": True})
    if comparison.source is None:
        return MeasureReply(metrics, details=details)
    source_metrics = _absolute_values(comparison, comparison.source, names, batch_size)
    ratios = {}
    for name in names:
        ratio = _ratio(comparison, comparison.source, name)
        ratios[name] = ratio.with_log_error(error_of(ratio.value, load.contention))
    return MeasureReply(metrics, source_metrics, ratios, details)


def _absolute_values(
    comparison: Comparison, subject: Subject, names: Sequence[str], batch_size: int
) -> dict[str, Estimate]:
    """Estimate metrics in ms, throughput in items per second."""
    by_statistic: dict[str, Estimate] = {}
    values: dict[str, Estimate] = {}
    for name in names:
        key = STATISTICS[name]
        if key not in by_statistic:
            by_statistic[key] = _absolute_ns(comparison, subject, key)
        ns = by_statistic[key]
        value = Estimate(ns.value / 1e6, ns.low / 1e6, ns.high / 1e6)
        if name == "throughput":
            items = batch_size * 1e3
            value = Estimate(items / value.value, items / value.high, items / value.low)
        values[name] = value
    return values


def _absolute_ns(comparison: Comparison, subject: Subject, name: str) -> Estimate:
    if name in START_UP:
        return log_interval(np.log(_start_up_times(subject, name)).tolist(), beyond=BEYOND)
    if comparison.by_replica:
        return log_interval(np.log(_values_by_replica(comparison, subject, name)).tolist(), beyond=BEYOND)
    blocks = _blocks(comparison, subject, name)
    return widened(bootstrap(_statistic_of(blocks, name), len(blocks)), len(blocks), comparison.beyond)


def _ratio(comparison: Comparison, source: Subject, metric: str) -> Estimate:
    candidate, name = comparison.candidate, STATISTICS[metric]
    if name == "p50":
        return comparison.estimate()
    if name in START_UP:
        logs = np.log(_start_up_times(candidate, name)) - np.log(_start_up_times(source, name))
        return log_interval(logs.tolist(), beyond=BEYOND)
    if comparison.by_replica:
        logs = np.log(_values_by_replica(comparison, candidate, name))
        source_logs = np.log(_values_by_replica(comparison, source, name))
        ratio = log_interval((logs - source_logs).tolist(), beyond=BEYOND)
    else:
        of_candidate = _statistic_of(_blocks(comparison, candidate, name), name)
        source_blocks = _blocks(comparison, source, name)
        of_source = _statistic_of(source_blocks, name)
        count = len(source_blocks)
        ratio = bootstrap(lambda indices: of_candidate(indices) / of_source(indices), count)
        ratio = widened(ratio, count, comparison.beyond)
    if metric == "throughput":
        return ratio.inverse()
    return ratio


def _start_up_times(subject: Subject, name: str) -> list[float]:
    """Return the start-up times of the sessions; the very first also pays for reading the file and loading code."""
    times = [float(getattr(replica, name)) for replica in subject.replicas]
    if len(times) >= 3:
        return times[1:]
    return times


def _counted(comparison: Comparison, name: str) -> list[int]:
    """Select the indices of the pairs that count for a statistic.

    A model's own occasional slowness is part of every statistic but the median, so there only pairs in which the thread
    was preempted are set aside.
    """
    if name == "p50":
        return comparison.selected()
    pairs = [Pair(pair.replica, 1.0, 1.0, max(pair.disturbed, pair.preempted)) for pair in comparison.pairs]
    return select_pairs(pairs)


def _blocks(comparison: Comparison, subject: Subject, name: str) -> list[np.ndarray]:
    """Return a subject's blocks that count, in the order of the pairs."""
    blocks_by_replica = [iter(replica.blocks) for replica in subject.replicas]
    blocks = [next(blocks_by_replica[pair.replica]) for pair in comparison.pairs]
    return [blocks[number] for number in _counted(comparison, name)]


def _values_by_replica(comparison: Comparison, subject: Subject, name: str) -> list[float]:
    pools: dict[int, list[np.ndarray]] = {}
    for number, times in zip(_counted(comparison, name), _blocks(comparison, subject, name), strict=True):
        pools.setdefault(comparison.pairs[number].replica, []).append(times)
    return [_value(np.concatenate(pool), name) for pool in pools.values()]


def _statistic_of(blocks: Sequence[np.ndarray], name: str) -> Callable[[np.ndarray], float]:
    """Return a function that computes a statistic of all times in the blocks with given indices, which may repeat.

    Quantiles come from times that are sorted once for all resamples.
    """
    if name not in QUANTILES:
        return lambda indices: _value(np.concatenate([blocks[index] for index in indices]), name)
    times = np.concatenate(blocks)
    order = np.argsort(times)
    times = times[order]
    block_of_time = np.repeat(np.arange(len(blocks)), list(map(len, blocks)))[order]

    def quantile(indices: np.ndarray) -> float:
        repetitions = np.bincount(indices, minlength=len(blocks))
        ends = np.cumsum(repetitions[block_of_time])
        position = QUANTILES[name] * (ends[-1] - 1)
        rank = int(position)
        ranks = [rank, min(rank + 1, ends[-1] - 1)]
        below, above = times[np.searchsorted(ends, ranks, side="right")]
        return float(below + (above - below) * (position - rank))

    return quantile


def _value(times: np.ndarray, name: str) -> float:
    # Outliers that are not rare are the model's own behaviour, and belong to the mean.
    if name == "mean" and outliers(times).mean() > RARE:
        return float(times.mean())
    return statistic(times, name)
