"""The third room, from times to estimates: all metrics of candidate and source, their ratios and intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from autoopt.measure.intervals.replicas import Statistic, block_interval, log_interval, mean_of, quantile_of
from autoopt.measure.latency.busy import Load, runs_on_several, thread_count
from autoopt.measure.latency.comparison import Comparison, Pair, Times, select_pairs
from autoopt.measure.latency.timer import Subject, outliers
from autoopt.measure.request import MeasureRequest
from autoopt.measure.two_ratios import TwoRatios, error_of
from autoopt.metrics import MEDIAN_LATENCY, START_UP, TOKEN_RATE, Estimate
from autoopt.tuning import TIMING

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
STEP: Final = "throughput"
"""The metric of steps of generation that is the number of sequences, hence tokens, per second."""
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class Estimates:
    """The estimates of one model."""

    metrics: Mapping[str, Estimate]
    source_metrics: Mapping[str, Estimate] = field(default_factory=dict)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    """Candidate / source."""
    two_ratios: TwoRatios | None = None
    """The ratio of the median by the clock and on one thread, if both were measured; `ratios` joins the two."""

    def with_ratio(self, name: str, ratio: Estimate, both: TwoRatios | None = None) -> Estimates:
        """Replace the ratio of one metric."""
        return replace(self, ratios={**self.ratios, name: ratio}, two_ratios=both)


def estimate(request: MeasureRequest, times: Times) -> list[list[Estimates]]:
    """Estimate the metrics of each call for each model, with both ratios where there are two."""
    found: list[list[Estimates]] = []
    for call in times.calls:
        found.append([])
        for number, (comparison, on_one_thread) in enumerate(zip(call.comparisons, call.one_thread, strict=True)):
            single = request.alone(number)
            if call.metric != MEDIAN_LATENCY:
                single = replace(single, metrics=(MEDIAN_LATENCY, STEP))
            one = estimates(single, comparison, times.load.contention)
            by_clock = one.ratios.get(MEDIAN_LATENCY)
            if by_clock is not None and on_one_thread is None:
                ratio = after_a_look(single, by_clock, stopped=call.stopped, load=times.load)
                one = one.with_ratio(MEDIAN_LATENCY, ratio)
            elif by_clock is not None and on_one_thread is not None:
                on_one = on_one_thread.comparison.estimate()
                both = both_ratios(single, by_clock, on_one, is_serial=on_one_thread.is_serial, load=times.load)
                one = one.with_ratio(MEDIAN_LATENCY, both.combined(), both)
                if call.metric == TOKEN_RATE:
                    one = one.with_ratio(STEP, both.combined().inverse(), both.inverse())
            found[-1].append(one)
    return found


def both_ratios(
    request: MeasureRequest, by_clock: Estimate, on_one_thread: Estimate, *, is_serial: bool, load: Load
) -> TwoRatios:
    """Weigh the ratio of the request's candidate on one thread beside that by the clock.

    Without a load, the ratio by the clock is as certain as its interval says.
    """
    contention = error_of(on_one_thread.value, load.contention)
    if is_serial:
        # Its blocks are those of the clock, only longer, but the load changes from one measurement to the next.
        return TwoRatios(by_clock, on_one_thread, contention, contention, is_serial=True)
    factor = thread_count(request, request.source) / thread_count(request, request.candidate)
    disturbance = abs(math.log(factor))
    if factor == 1:
        disturbance = TIMING.disturbance if load.busy else 0.0
    return TwoRatios(by_clock, on_one_thread, disturbance, contention, factor, has_free_cores=load.gave_way)


def after_a_look(request: MeasureRequest, by_clock: Estimate, *, stopped: str, load: Load) -> Estimate:
    """Add to the ratio of a hopeless candidate by the clock what other programs may."""
    if load.busy and stopped == "hopeless" and runs_on_several(request, request.candidate):
        return by_clock.with_log_error(TIMING.look_disturbance)
    return by_clock


def estimates(request: MeasureRequest, comparison: Comparison, contention: float = 0.0) -> Estimates:
    """Estimate the requested metrics of both models and their paired ratios from the pairs that count.

    `contention` is that for caches and memory with other programs.
    """
    names = list(filter(STATISTICS.__contains__, request.metrics)) or list(STATISTICS)
    batch_size = request.settings.batch_size or 1
    metrics = _absolute_values(comparison, comparison.candidate, names, batch_size)
    if request.is_source:
        return Estimates(metrics, metrics, dict.fromkeys(names, Estimate.exact(1.0)))
    if comparison.source is None:
        return Estimates(metrics)
    source_metrics = _absolute_values(comparison, comparison.source, names, batch_size)
    keys = {STATISTICS[name] for name in names}
    by_statistic = {key: _statistic(comparison, key, comparison.candidate, comparison.source) for key in keys}
    ratios = {}
    for name in names:
        ratio = by_statistic[STATISTICS[name]]
        if name == "throughput":
            ratio = ratio.inverse()
        ratios[name] = ratio.with_log_error(error_of(ratio.value, contention))
    return Estimates(metrics, source_metrics, ratios)


def _absolute_values(
    comparison: Comparison, subject: Subject, names: Sequence[str], batch_size: int
) -> dict[str, Estimate]:
    """Estimate metrics in ms, throughput in items per second."""
    by_statistic = {key: _statistic(comparison, key, subject) for key in {STATISTICS[name] for name in names}}
    values: dict[str, Estimate] = {}
    for name in names:
        ns = by_statistic[STATISTICS[name]]
        value = Estimate(ns.value / 1e6, ns.low / 1e6, ns.high / 1e6)
        if name == "throughput":
            items = batch_size * 1e3
            value = Estimate(items / value.value, items / value.high, items / value.low)
        values[name] = value
    return values


def _statistic(comparison: Comparison, name: str, subject: Subject, source: Subject | None = None) -> Estimate:
    """Estimate a statistic of a model's times, in ns; with a source, the ratio to the source's."""
    if name == "p50" and source is not None:
        return comparison.estimate()
    if name in START_UP or comparison.by_replica:
        logs = _logs_by_session(comparison, subject, name)
        if source is not None:
            logs = logs - _logs_by_session(comparison, source, name)
        return log_interval(logs.tolist(), beyond=TIMING.beyond_processes)
    blocks = _blocks(comparison, subject, name)
    of_subject = _statistic_of(blocks, name)
    if source is None:
        return block_interval(of_subject, blocks, comparison.beyond)
    of_source = _statistic_of(_blocks(comparison, source, name), name)
    return block_interval(lambda resamples: of_subject(resamples) / of_source(resamples), blocks, comparison.beyond)


def _logs_by_session(comparison: Comparison, subject: Subject, name: str) -> np.ndarray:
    """Compute the logarithms of a statistic of each session that counts."""
    if name in START_UP:
        times = [float(getattr(replica, name)) for replica in subject.replicas]
        # The very first session also pays for reading the file and loading code.
        return np.asarray(np.log(times[1:] if len(times) >= 3 else times))
    pools: dict[int, list[np.ndarray]] = {}
    for number, block in zip(_counted(comparison, name), _blocks(comparison, subject, name), strict=True):
        pools.setdefault(comparison.pairs[number].replica, []).append(block)
    values = []
    for pool in map(np.concatenate, pools.values()):
        if name in QUANTILES:
            values.append(np.quantile(pool, QUANTILES[name]))
        else:
            values.append(pool[_counts_in_mean(pool)].mean())
    return np.asarray(np.log(values))


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


def _statistic_of(blocks: Sequence[np.ndarray], name: str) -> Statistic:
    """Make the statistic of all times in the blocks. For a mean, the outliers of all blocks are those of resamples."""
    if name in QUANTILES:
        return quantile_of(blocks, QUANTILES[name])
    return mean_of(blocks, _counts_in_mean(np.concatenate(blocks)))


def _counts_in_mean(times: np.ndarray) -> np.ndarray:
    """Mark the times that count in their mean: all but rare outliers; others are the model's own behaviour."""
    slow = outliers(times)
    return np.asarray(~slow if slow.mean() <= TIMING.rare_outliers else np.ones_like(slow))
