"""One candidate compared with the source: the pairs of blocks measured so far, their ratio and its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autoopt.json_codec import JsonValue
from autoopt.measure.intervals.pooling import BEYOND
from autoopt.measure.intervals.replicas import FEW, effective_count, log_interval
from autoopt.measure.latency.pairs import Pair, disturbance, select_pairs
from autoopt.measure.latency.subjects import Subject
from autoopt.metrics import Estimate

BEYOND_SESSIONS = 8
"""The number of sessions of each model that `BEYOND` was found with."""
UNEQUAL = 4.0
"""Variance of the medians of sessions, relative to what pairs within them explain, from which sessions differ. Of equal
sessions, one measurement in fifty exceeds it with four sessions, one in five hundred with eight (F distribution)."""
DRIFT, SPREAD = 0.1, 0.3
"""Relative drift and spread of the source's blocks above which the machine counts as disturbed."""


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

    def _independent_logs(self, selected: Sequence[int]) -> list[float]:
        """Compute the logarithms of the independent ratios: of each replica's median pair, or of each pair."""
        pairs = [self.pairs[number] for number in selected]
        if self.by_replica:
            return [float(np.median(logs)) for logs in _logs_by_replica(pairs).values()]
        return [math.log(pair.candidate / pair.source) for pair in pairs]

    def estimate(self) -> Estimate:
        """Estimate the ratio of the block medians, candidate / source; without a source the median itself, in ns."""
        return self._estimate(self.selected())

    def _estimate(self, selected: Sequence[int]) -> Estimate:
        return log_interval(self._independent_logs(selected), beyond=self.beyond, seed=self.seed)

    @property
    def beyond(self) -> float:
        """Half-width, in logarithms, of differences that the sessions do not show: larger if they are few."""
        if self.replicas >= FEW:
            return BEYOND
        return BEYOND * math.sqrt(BEYOND_SESSIONS / self.replicas)

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
        if total <= UNEQUAL * within:
            return math.sqrt(1 / longer)
        return math.sqrt((total - within + within / longer) / total)

    def summary(self) -> dict[str, JsonValue]:
        """Describe the comparison, as JSON for the evaluation's details. `blocks` holds all medians, in ns."""
        reference = self.source or self.candidate
        drift, spread = self._source_pace()
        selected = self.selected_pairs()
        logs = [math.log(pair.candidate / pair.source) for pair in selected]
        return {
            "pairs": len(self.pairs),
            "set_aside": len(self.pairs) - len(selected),
            "calm": self._undisturbed_share(),
            "replicas": len(self.candidate.replicas),
            "repeats": self.candidate.repeats,
            "source_repeats": self.source.repeats if self.source else 0,
            "effective_repeats": round(effective_count(logs), 1),
            "warm_up_calls": self.candidate.replicas[0].warm.calls,
            "warm_up_settled": all(replica.warm.settled for replica in self.candidate.replicas),
            "source_warm_up_calls": reference.replicas[0].warm.calls,
            "baseline_drift": drift,
            "baseline_spread": spread,
            "blocks": self._blocks(),
        }

    def _blocks(self) -> dict[str, JsonValue]:
        """List the pairs by column, so that another estimator can be applied without measuring again."""
        columns: dict[str, JsonValue] = {
            "replica": [pair.replica for pair in self.pairs],
            "candidate": [round(pair.candidate) for pair in self.pairs],
            "disturbed": [round(pair.disturbed, 3) for pair in self.pairs],
        }
        if self.source is not None:
            columns["source"] = [round(pair.source) for pair in self.pairs]
        return columns

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
    ratios = np.array(list(map(unit_logs, comparisons)))
    if len(ratios) < 2 or ratios.shape[1] < 3:
        return 0.0
    middle = np.median(ratios, axis=1, keepdims=True)
    reach = 3 * 1.4826 * np.median(np.abs(ratios - middle), axis=1, keepdims=True)
    covariances = np.cov(np.clip(ratios, middle - reach, middle + reach))
    shared = covariances[~np.eye(len(ratios), dtype=bool)].mean()
    return float(max(0.0, shared) / ratios.shape[1])


def unit_logs(comparison: Comparison) -> list[float]:
    """Compute the logarithms of the ratios of all units, disturbed or not, so that comparisons have the same units."""
    if comparison.by_replica:
        return [float(np.median(logs)) for logs in _logs_by_replica(comparison.pairs).values()]
    return [math.log(pair.candidate / pair.source) for pair in comparison.pairs]


def _logs_by_replica(pairs: Sequence[Pair]) -> dict[int, list[float]]:
    logs: dict[int, list[float]] = {}
    for pair in pairs:
        logs.setdefault(pair.replica, []).append(math.log(pair.candidate / pair.source))
    return logs
