"""Metrics of a latency measurement: absolute values, paired ratios, and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from autoopt.json_codec import JsonObject
from autoopt.measure.contention import DETAIL as CONTENTION
from autoopt.measure.contention import error_of
from autoopt.measure.intervals.blocks import Statistic, block_interval, mean_of, quantile_of
from autoopt.measure.intervals.pooling import BEYOND
from autoopt.measure.intervals.replicas import log_interval
from autoopt.measure.latency.comparison import Comparison
from autoopt.measure.latency.machine import QUIET, Load
from autoopt.measure.latency.pairs import Pair, select_pairs
from autoopt.measure.latency.subjects import Subject
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
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
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
    by_statistic: dict[str, Estimate] = {}
    ratios = {}
    for name in names:
        key = STATISTICS[name]
        if key not in by_statistic:
            by_statistic[key] = _ratio(comparison, comparison.source, key)
        ratio = by_statistic[key].inverse() if name == "throughput" else by_statistic[key]
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
    return block_interval(_statistic_of(blocks, name), blocks, comparison.beyond)


def _ratio(comparison: Comparison, source: Subject, name: str) -> Estimate:
    candidate = comparison.candidate
    if name == "p50":
        return comparison.estimate()
    if name in START_UP:
        logs = np.log(_start_up_times(candidate, name)) - np.log(_start_up_times(source, name))
        return log_interval(logs.tolist(), beyond=BEYOND)
    if comparison.by_replica:
        logs = np.log(_values_by_replica(comparison, candidate, name))
        source_logs = np.log(_values_by_replica(comparison, source, name))
        return log_interval((logs - source_logs).tolist(), beyond=BEYOND)
    blocks, source_blocks = _blocks(comparison, candidate, name), _blocks(comparison, source, name)
    of_candidate, of_source = _statistic_of(blocks, name), _statistic_of(source_blocks, name)
    return block_interval(lambda resamples: of_candidate(resamples) / of_source(resamples), blocks, comparison.beyond)


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


def _statistic_of(blocks: Sequence[np.ndarray], name: str) -> Statistic:
    """Make the statistic of all times in the blocks. For a mean, the outliers of all blocks are those of resamples."""
    if name in QUANTILES:
        return quantile_of(blocks, QUANTILES[name])
    return mean_of(blocks, _counts_in_mean(np.concatenate(blocks)))


def _value(times: np.ndarray, name: str) -> float:
    if name in QUANTILES:
        return float(np.quantile(times, QUANTILES[name]))
    return float(times[_counts_in_mean(times)].mean())


def _counts_in_mean(times: np.ndarray) -> np.ndarray:
    """Mark the times that count in their mean: all but rare outliers; others are the model's own behaviour."""
    slow = outliers(times)
    return np.asarray(~slow if slow.mean() <= RARE else np.ones_like(slow))
