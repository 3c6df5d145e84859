"""Times of a candidate and the source: pairs of blocks, those that count, and the ratio that they show.

`timing` fills these records, `estimate` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from autoopt.json_codec import JsonValue
from autoopt.measure.intervals.replicas import FEW, effective_count, log_interval
from autoopt.measure.latency.busy import Load
from autoopt.measure.latency.throughput import Table
from autoopt.measure.latency.timer import Block, Subject
from autoopt.metrics import Estimate
from autoopt.tuning import TIMING


class Pair(NamedTuple):
    """One block of each model. Times are in ns."""

    replica: int
    candidate: float
    """Median of the candidate's block."""
    source: float = 1.0
    """Median of the source's block; 1 if there is no source."""
    disturbed: float = 0.0
    """The larger share of the two blocks that others cost them."""
    preempted: float = 0.0
    """The larger share of the two blocks' times in which others had the core. The median of many calls does not show
    it, means and percentiles do."""

    def beside(self, source: Pair) -> Pair:
        """Make the pair of this candidate's block and the source's, which was timed as a candidate alone."""
        disturbed, preempted = max(self.disturbed, source.disturbed), max(self.preempted, source.preempted)
        return Pair(self.replica, self.candidate, source.candidate, disturbed, preempted)


def disturbed_share(block: Block, *, on_core: bool) -> float:
    """Compute the share of a block that others cost it.

    With `on_core`, times on the core are compared, where only the cold caches after a preemption count.
    """
    times = block.on_core if on_core else block.wall
    waiting_share = block.helper_switches * TIMING.helper_ns / float(times.sum())
    if on_core:
        return waiting_share + block.switches * TIMING.switch_ns / float(times.sum())
    return max(waiting_share, block.preempted)


def preempted_share(block: Block, *, on_core: bool) -> float:
    """Compute the share of a block's times, on the core or by the clock, in which others had the core."""
    return 0.0 if on_core and block.has_core_times else block.preempted


def select_pairs(pairs: Sequence[Pair]) -> list[int]:
    """Select the pairs that count, as indices in time order.

    These are the undisturbed pairs of each replica, or its least disturbed quarter if fewer are undisturbed. Replicas
    without any undisturbed pair count only if there are too few others.
    """
    levels = disturbance(pairs)
    by_replica: dict[int, list[int]] = {}
    for number, pair in enumerate(pairs):
        by_replica.setdefault(pair.replica, []).append(number)
    selected: list[int] = []
    undisturbed: list[int] = []
    undisturbed_replicas = 0
    for numbers in by_replica.values():
        best = [number for number in numbers if levels[number] <= 1]
        if best:
            undisturbed += best
            undisturbed_replicas += 1
        fewest = math.ceil(len(numbers) / 4)
        if len(best) < fewest:
            best = sorted(numbers, key=lambda number: levels[number])[:fewest]
        selected += best
    if undisturbed_replicas >= max(FEW, math.ceil(len(by_replica) / 2)):
        selected = undisturbed
    return sorted(selected)


def disturbance(pairs: Sequence[Pair]) -> list[float]:
    """Rate how disturbed each pair is; undisturbed pairs have at most 1.

    The rating is the larger of two: the time that others cost, and how much slower than the fast quarter
    of its replica the slower of its blocks was.
    """
    replica = np.array([pair.replica for pair in pairs])
    slowdown = np.zeros(len(pairs))
    for times in (np.array([pair.candidate for pair in pairs]), np.array([pair.source for pair in pairs])):
        for number in set(replica.tolist()):
            mask = replica == number
            slowdown[mask] = np.maximum(slowdown[mask], times[mask] / np.quantile(times[mask], 0.25) - 1)
    levels = []
    for pair, slow in zip(pairs, slowdown, strict=True):
        levels.append(max(pair.disturbed / TIMING.disturbed, float(slow) / TIMING.slow_block))
    return levels


StopReason: TypeAlias = Literal["narrow", "no narrower", "hopeless", "worse", "time", "max repeats"]


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
            "effective_repeats": round(effective_count(logs), 1),
            "blocks": blocks,
        }

    def _undisturbed_share(self) -> float:
        return round(sum(level <= 1 for level in disturbance(self.pairs)) / len(self.pairs), 3)

    @property
    def disturbed(self) -> bool:
        """True if the machine changed its pace (load, heat, frequency), or most blocks were disturbed.

        The source's blocks tell the pace (the candidate's if there is no source), each relative to its replica's
        median, because replicas have inputs of their own.
        """
        times = [pair.candidate if self.source is None else pair.source for pair in self.pairs]
        by_replica: dict[int, list[float]] = {}
        for pair, ns in zip(self.pairs, times, strict=True):
            by_replica.setdefault(pair.replica, []).append(ns)
        medians = {replica: float(np.median(values)) for replica, values in by_replica.items()}
        relative = np.array([ns / medians[pair.replica] for pair, ns in zip(self.pairs, times, strict=True)])
        quarter = max(1, len(relative) // 4)
        low, middle, high = np.quantile(relative, [0.1, 0.5, 0.9])
        drift = round(float(np.median(relative[-quarter:]) / np.median(relative[:quarter]) - 1), 4)
        spread = round(float((high - low) / middle), 4)
        return abs(drift) > TIMING.drift or spread > TIMING.spread or self._undisturbed_share() < 0.5


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
