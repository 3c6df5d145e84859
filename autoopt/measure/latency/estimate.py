"""The third room, from times to estimates: the ratio of candidate and source, all metrics of both, their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from autoopt.json_codec import JsonValue
from autoopt.measure.intervals.blocks import Statistic, block_interval, mean_of, quantile_of
from autoopt.measure.intervals.replicas import FEW, effective_count, log_interval
from autoopt.measure.latency.busy import after_a_look, both_ratios
from autoopt.measure.latency.load import Load
from autoopt.measure.latency.pairs import Pair, disturbance, select_pairs
from autoopt.measure.latency.subjects import Subject
from autoopt.measure.latency.throughput import Table
from autoopt.measure.latency.timer import outliers
from autoopt.measure.request import MeasureRequest
from autoopt.measure.two_ratios import TwoRatios, error_of
from autoopt.metrics import MEDIAN_LATENCY, START_UP, TOKEN_RATE, Estimate
from autoopt.tuning import TIMING

StopReason: TypeAlias = Literal["narrow", "no narrower", "hopeless", "worse", "time", "max repeats"]

DRIFT, SPREAD = 0.1, 0.3
"""Relative drift and spread of the source's blocks above which the machine counts as disturbed."""
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


@dataclass
class Comparison:
    """A candidate and the source, or None if there is nothing to compare with."""

    candidate: Subject
    source: Subject | None
    replicas: int = 1
    """Sessions of each model in all, open or still to be opened."""
    seed: int = 0
    pairs: list[Pair] = field(default_factory=list)
    """In time order."""

    def selected_pairs(self) -> list[Pair]:
        """Return the pairs that count, in time order."""
        return [self.pairs[number] for number in self.selected()]

    def selected(self) -> list[int]:
        """Return the indices of the pairs that count: the undisturbed ones, or all where these agree and tell more.

        On some machines most blocks are a little disturbed all the time. There the few others are worth less than all.
        """
        undisturbed, everything = select_pairs(self.pairs), list(range(len(self.pairs)))
        if 2 * len(undisturbed) > len(self.pairs):
            return undisturbed
        few, many = self._estimate(undisturbed), self._estimate(everything)
        agree = few.low <= many.value <= few.high
        if agree and many.high / many.low < few.high / few.low:
            return everything
        return undisturbed

    @property
    def by_replica(self) -> bool:
        """True if the replicas are the independent units, rather than the pairs."""
        return self.replicas >= FEW and len({pair.replica for pair in self.pairs}) == self.replicas

    def unit_logs(self, pairs: Sequence[Pair] | None = None) -> list[float]:
        """Compute the logarithms of the independent ratios: of each replica's median pair, or of each pair.

        Without `pairs`, of all of them, disturbed or not, so that comparisons have the same units.
        """
        pairs = self.pairs if pairs is None else pairs
        if self.by_replica:
            return [float(np.median(logs)) for logs in _logs_by_replica(pairs).values()]
        return [math.log(pair.candidate / pair.source) for pair in pairs]

    def estimate(self) -> Estimate:
        """Estimate the ratio of the block medians, candidate / source; without a source the median itself, in ns."""
        return self._estimate(self.selected())

    def _estimate(self, selected: Sequence[int]) -> Estimate:
        logs = self.unit_logs([self.pairs[number] for number in selected])
        return log_interval(logs, beyond=self.beyond, seed=self.seed)

    @property
    def beyond(self) -> float:
        """Half-width, in logarithms, of differences that the sessions do not show: larger if they are few."""
        if self.replicas >= FEW:
            return TIMING.beyond_processes
        return TIMING.beyond_processes * math.sqrt(TIMING.beyond_sessions / self.replicas)

    def remaining_width(self, longer: float) -> float:
        """Predict the share of the interval's width that will remain after `longer` times the time.

        The spread between sessions stays; the spread of pairs within a session falls with their number. Sessions count
        as equal unless their medians differ clearly more than pairs within them explain.
        """
        several = [logs for logs in _logs_by_replica(self.selected_pairs()).values() if len(logs) > 1]
        if not self.by_replica or not several:
            return 0.0
        median_variance = math.pi / 2  # The variance of a median, relative to that of a mean of normal values.
        pairs_per_replica = sum(map(len, several)) / len(several)
        within = median_variance * float(np.mean([np.var(logs, ddof=1) for logs in several])) / pairs_per_replica
        total = 0.0
        if len(several) > 1:
            total = float(np.var(list(map(np.median, several)), ddof=1))
        if total <= TIMING.unequal * within:
            return math.sqrt(1 / longer)
        return math.sqrt((total - within + within / longer) / total)

    def summary(self) -> dict[str, JsonValue]:
        """Describe the comparison, as JSON for the evaluation's details.

        `blocks` lists the pairs by column, in ns, so that another estimator can be applied without measuring again.
        """
        drift, spread = self._source_pace()
        selected = self.selected_pairs()
        blocks: dict[str, JsonValue] = {
            "replica": [pair.replica for pair in self.pairs],
            "candidate": [round(pair.candidate) for pair in self.pairs],
            "disturbed": [round(pair.disturbed, 3) for pair in self.pairs],
        }
        if self.source is not None:
            blocks["source"] = [round(pair.source) for pair in self.pairs]
        logs = [math.log(pair.candidate / pair.source) for pair in selected]
        return {
            "pairs": len(self.pairs),
            "set_aside": len(self.pairs) - len(selected),
            "calm": self._undisturbed_share(),
            "replicas": len(self.candidate.replicas),
            "repeats": self.candidate.repeats,
            "source_repeats": self.source.repeats if self.source else 0,
            "effective_repeats": round(effective_count(logs), 1),
            "baseline_drift": drift,
            "baseline_spread": spread,
            "blocks": blocks,
        }

    def _undisturbed_share(self) -> float:
        return round(sum(level <= 1 for level in disturbance(self.pairs)) / len(self.pairs), 3)

    def _source_pace(self) -> tuple[float, float]:
        """Compute the relative drift and spread of the source's blocks (the candidate's if there is no source).

        Each block counts relative to its replica's median, because replicas have inputs of their own.
        """
        times = [pair.candidate if self.source is None else pair.source for pair in self.pairs]
        by_replica: dict[int, list[float]] = {}
        for pair, ns in zip(self.pairs, times, strict=True):
            by_replica.setdefault(pair.replica, []).append(ns)
        medians = {replica: float(np.median(values)) for replica, values in by_replica.items()}
        relative = np.array([ns / medians[pair.replica] for pair, ns in zip(self.pairs, times, strict=True)])
        quarter = max(1, len(relative) // 4)
        low, middle, high = np.quantile(relative, [0.1, 0.5, 0.9])
        drift = float(np.median(relative[-quarter:]) / np.median(relative[:quarter]) - 1)
        return round(drift, 4), round(float((high - low) / middle), 4)

    @property
    def disturbed(self) -> bool:
        """True if the machine changed its pace (load, heat, frequency), or most blocks were disturbed."""
        drift, spread = self._source_pace()
        return abs(drift) > DRIFT or spread > SPREAD or self._undisturbed_share() < 0.5


def shared_variance(comparisons: Sequence[Comparison]) -> float:
    """Estimate the variance that the logarithmic ratios of these comparisons share, because their source is the same.

    The mean covariance of the ratios over the independent units, which are replicas or rounds of blocks, divided by
    their number; 0 for one comparison. Values beyond 3 median absolute deviations are moved there, as one disturbed
    block must not decide.
    """
    ratios = np.array([comparison.unit_logs() for comparison in comparisons])
    if len(ratios) < 2 or ratios.shape[1] < 3:
        return 0.0
    middle = np.median(ratios, axis=1, keepdims=True)
    reach = 3 * 1.4826 * np.median(np.abs(ratios - middle), axis=1, keepdims=True)
    covariances = np.cov(np.clip(ratios, middle - reach, middle + reach))
    shared = covariances[~np.eye(len(ratios), dtype=bool)].mean()
    return float(max(0.0, shared) / ratios.shape[1])


def _logs_by_replica(pairs: Sequence[Pair]) -> dict[int, list[float]]:
    logs: dict[int, list[float]] = {}
    for pair in pairs:
        logs.setdefault(pair.replica, []).append(math.log(pair.candidate / pair.source))
    return logs


@dataclass(frozen=True)
class ThreadTimes:
    """The times of a candidate and the source on one thread."""

    comparison: Comparison
    is_serial: bool
    """True if both ran with their own session options, because neither shares out work among threads."""


@dataclass(frozen=True)
class CallTimes:
    """The times of a kind of call; lists have an entry for each model."""

    metric: str
    comparisons: Sequence[Comparison]
    """By the clock."""
    stopped: StopReason
    seconds: float
    one_thread: Sequence[ThreadTimes | None]
    """None where the clock was good enough, or where one thread tells nothing."""

    def summary(self, number: int) -> dict[str, JsonValue]:
        """Describe how one comparison went, as JSON for the evaluation's details."""
        return {
            "stopped": self.stopped,
            "seconds": round(self.seconds, 4),
            "shared_variance": shared_variance(self.comparisons),
            **self.comparisons[number].summary(),
        }


@dataclass(frozen=True)
class Times:
    """All that was timed for one request."""

    calls: Sequence[CallTimes]
    """The inference first."""
    tables: Sequence[Table]
    """Throughput, of each model."""
    load: Load
    """The load of other programs that the models have seen."""
    machine: dict[str, JsonValue]
    """The machine's state."""


@dataclass(frozen=True)
class Estimates:
    """The estimates of one model."""

    metrics: Mapping[str, Estimate]
    source_metrics: Mapping[str, Estimate] = field(default_factory=dict)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    """Candidate / source."""
    interrupted: int = 0
    """Pairs that do not count in means and percentiles."""
    two_ratios: TwoRatios | None = None
    """The ratio of the median by the clock and on one thread, if both were measured; `ratios` joins the two."""

    def with_ratio(self, name: str, ratio: Estimate, both: TwoRatios | None = None) -> Estimates:
        """Replace the ratio of one metric."""
        return replace(self, ratios={**self.ratios, name: ratio}, two_ratios=both)


def estimate(request: MeasureRequest, times: Times) -> list[list[Estimates]]:
    """Estimate the metrics of each call for each model, with both ratios where there are two."""
    return [_estimates_of_call(request, call, times.load) for call in times.calls]


def _estimates_of_call(request: MeasureRequest, call: CallTimes, load: Load) -> list[Estimates]:
    found = []
    for number, (comparison, on_one_thread) in enumerate(zip(call.comparisons, call.one_thread, strict=True)):
        single = request.alone(number)
        if call.metric != MEDIAN_LATENCY:
            single = replace(single, metrics=(MEDIAN_LATENCY, STEP))
        one = estimates(single, comparison, load.contention)
        by_clock = one.ratios.get(MEDIAN_LATENCY)
        if by_clock is not None and on_one_thread is None:
            one = one.with_ratio(MEDIAN_LATENCY, after_a_look(single, by_clock, stopped=call.stopped, load=load))
        elif by_clock is not None and on_one_thread is not None:
            on_one = on_one_thread.comparison.estimate()
            both = both_ratios(single, by_clock, on_one, is_serial=on_one_thread.is_serial, load=load)
            one = one.with_ratio(MEDIAN_LATENCY, both.combined(), both)
            if call.metric == TOKEN_RATE:
                one = one.with_ratio(STEP, both.combined().inverse(), both.inverse())
        found.append(one)
    return found


def estimates(request: MeasureRequest, comparison: Comparison, contention: float = 0.0) -> Estimates:
    """Estimate the requested metrics of both models and their paired ratios from the pairs that count.

    `contention` is that for caches and memory with other programs.
    """
    interrupted = len(comparison.pairs) - len(_counted(comparison, "p99"))
    names = [name for name in request.metrics if name in STATISTICS] or list(STATISTICS)
    batch_size = request.settings.batch_size or 1
    metrics = _absolute_values(comparison, comparison.candidate, names, batch_size)
    if request.is_source:
        return Estimates(metrics, metrics, dict.fromkeys(names, Estimate.exact(1.0)), interrupted)
    if comparison.source is None:
        return Estimates(metrics, interrupted=interrupted)
    source_metrics = _absolute_values(comparison, comparison.source, names, batch_size)
    keys = {STATISTICS[name] for name in names}
    by_statistic = {key: _statistic(comparison, key, comparison.candidate, comparison.source) for key in keys}
    ratios = {}
    for name in names:
        ratio = by_statistic[STATISTICS[name]]
        if name == "throughput":
            ratio = ratio.inverse()
        ratios[name] = ratio.with_log_error(error_of(ratio.value, contention))
    return Estimates(metrics, source_metrics, ratios, interrupted)


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
