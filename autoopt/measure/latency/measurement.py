"""One latency measurement: interleaved blocks of source and candidate, in stages, until their ratio is certain."""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from autoopt.json_codec import JsonValue
from autoopt.measure.intervals.replicas import FEW, effective_count, log_interval
from autoopt.measure.latency.pairs import Pair, disturbance, select_pairs
from autoopt.measure.latency.subjects import LEAD, LEAD_LONG, Subject
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Estimate

StopReason: TypeAlias = Literal["narrow", "no narrower", "worse", "time", "max repeats"]
GAIN = 0.2
"""Share of its width by which an interval that will not become narrow enough must shrink until the time is up, to make
more repeats worthwhile. Where sessions differ, more repeats in them do not help: for a model of 0.06 ms on a shared
machine the interval was about as wide after 24 pairs of blocks as after 180."""
BEYOND = 0.008
"""Half-width, in logarithms, of the differences between processes, which no session of one process shows: the ratio
of two models of 0.1 ms, measured for 3 s in each of 20 processes, spread by 0.3 %. The interval is to hold in another
process, and both the estimate and that process have this error: 1.96 * 0.3 % * sqrt(2)."""
BEYOND_FEW = 0.013
"""The same with too few sessions to see how they differ."""
DRIFT, SPREAD = 0.1, 0.3
"""Relative drift and spread of the source's blocks above which the machine counts as disturbed."""
FEWEST_PAIRS = 3
FIRST_SHARE, NEXT_SHARE = 0.04, 0.01
"""Shares of the time for warming up the first and each further session."""


@dataclass
class Measurement:
    """One measurement under way. `source` is None if there is nothing to compare with."""

    candidate: Subject
    source: Subject | None
    settings: MeasurementSettings
    pairs: list[Pair] = field(default_factory=list)
    """In time order."""
    replicas: int = 1
    stopped: StopReason = "time"
    seconds: float = 0.0

    def run(self) -> Measurement:
        """Measure until the settings are satisfied."""
        rng = random.Random(self.settings.seed)
        began = time.monotonic()
        with _no_garbage_collection():
            for index in self._schedule(began):
                self._time_pair(index, rng)
                self.seconds = time.monotonic() - began
                reason = self._stop_reason()
                if reason is not None:
                    self.stopped = reason
                    break
        return self

    def _schedule(self, began: float) -> Iterator[int]:
        """Yield replica numbers: in the first round with a new pair of sessions each, then all of them in turn."""
        self._add_replicas(FIRST_SHARE)
        yield 0
        self.replicas = self._affordable_replicas(time.monotonic() - began)
        for index in range(1, self.replicas):
            self._add_replicas(NEXT_SHARE)
            yield index
        while True:
            yield from range(self.replicas)

    def _subjects(self) -> list[Subject]:
        return [self.candidate] if self.source is None else [self.candidate, self.source]

    def _add_replicas(self, share: float) -> None:
        subjects = self._subjects()
        # The session that opens first may get the better memory, so the models take turns.
        if len(self.candidate.replicas) % 2:
            subjects.reverse()
        for subject in subjects:
            subject.add_replica(share * self.settings.seconds * 1e9)

    def _affordable_replicas(self, elapsed: float) -> int:
        """Compute how many replicas there is time for: each needs its sessions and three pairs."""
        session_ns = pair_ns = 0.0
        for subject in self._subjects():
            first = subject.replicas[0]
            session_ns += first.cold_start + first.first_inference
            pair_ns += float(first.blocks[0].sum()) + max(LEAD, min(5 * first.warm.time, LEAD_LONG))
        remaining = max(0.0, self.settings.seconds - elapsed)
        by_sessions = 1 + 0.5 * remaining / (session_ns / 1e9 + 2 * NEXT_SHARE * self.settings.seconds)
        by_pairs = 1 + remaining / (3 * (pair_ns / 1e9))
        return int(min(self.settings.replicas, by_sessions, by_pairs))

    def _time_pair(self, index: int, rng: random.Random) -> None:
        subjects = self._subjects()
        rng.shuffle(subjects)
        blocks = {id(subject): subject.time_block(index) for subject in subjects}
        candidate_ns = float(np.median(blocks[id(self.candidate)].times))
        source_ns = 1.0
        if self.source is not None:
            source_ns = float(np.median(blocks[id(self.source)].times))
        preempted = max(block.preempted for block in blocks.values())
        self.pairs.append(Pair(index, candidate_ns, source_ns, preempted))

    def selected_pairs(self) -> list[Pair]:
        """Return the pairs that count, in time order."""
        return [self.pairs[number] for number in select_pairs(self.pairs)]

    @property
    def by_replica(self) -> bool:
        """True if the replicas are the independent units, rather than the pairs."""
        return self.replicas >= FEW and len({pair.replica for pair in self.pairs}) == self.replicas

    def independent_logs(self) -> list[float]:
        """Compute the logarithms of the independent ratios: of each replica's median pair, or of each pair."""
        pairs = self.selected_pairs()
        if self.by_replica:
            return [float(np.median(logs)) for logs in _logs_by_replica(pairs).values()]
        return [math.log(pair.candidate / pair.source) for pair in pairs]

    def estimate(self) -> Estimate:
        """Estimate the ratio of the block medians, candidate / source; without a source the median itself, in ns."""
        beyond = BEYOND if self.replicas >= FEW else BEYOND_FEW
        return log_interval(self.independent_logs(), beyond=beyond, seed=self.settings.seed)

    def _stop_reason(self) -> StopReason | None:
        settings = self.settings
        # Fewer pairs say nothing, so a slow model gets twice the time for them.
        if self.seconds > settings.seconds * (1 if len(self.pairs) >= FEWEST_PAIRS else 2):
            return "time"
        if len(self.pairs) >= settings.max_pairs:
            return "max repeats"
        if settings.fixed or not self._is_checkpoint():
            return None
        estimate = self.estimate()
        incumbent = settings.incumbent_ratio
        if self.source is not None and incumbent is not None and estimate.low > incumbent * settings.margin:
            return "worse"
        if len(self.selected_pairs()) >= max(FEWEST_PAIRS * self.replicas, 12):
            return self._width_reason((estimate.high - estimate.low) / estimate.value)
        return None

    def _width_reason(self, width: float) -> StopReason | None:
        target = self.settings.target_width
        if width <= target:
            return "narrow"
        remaining_share = self._remaining_width()
        if remaining_share > 1 - GAIN and width * remaining_share > target:
            return "no narrower"
        return None

    def _is_checkpoint(self) -> bool:
        """True when it is worth looking at the estimate: in the first round after each pair, then once per round."""
        count = len(self.pairs)
        in_first_round = FEWEST_PAIRS <= count <= self.replicas
        return in_first_round or (count >= FEWEST_PAIRS and count % max(self.replicas, FEW) == 0)

    def _remaining_width(self) -> float:
        """Predict the share of the interval's width that will remain when the time is up.

        The spread between sessions stays; the spread of pairs within a session falls with their number.
        """
        several = [logs for logs in _logs_by_replica(self.selected_pairs()).values() if len(logs) > 1]
        if not self.by_replica or not several:
            return 0.0
        median_variance = math.pi / 2  # The variance of a median, relative to that of a mean of normal values.
        pairs_per_replica = sum(map(len, several)) / len(several)
        within = median_variance * float(np.mean([np.var(logs, ddof=1) for logs in several])) / pairs_per_replica
        total = 0.0
        if len(several) > 1:
            total = float(np.var([np.median(logs) for logs in several], ddof=1))
        between = max(0.0, total - within)
        if between + within <= 0:
            return 1.0
        longer = max(1.0, self.settings.seconds / max(self.seconds, 1e-9))
        return math.sqrt((between + within / longer) / (between + within))

    def summary(self) -> dict[str, JsonValue]:
        """Describe how the measurement went, as JSON for the evaluation's details."""
        reference = self.source or self.candidate
        drift, spread = self._source_pace()
        selected = self.selected_pairs()
        logs = [math.log(pair.candidate / pair.source) for pair in selected]
        return {
            "stopped": self.stopped,
            "seconds": round(self.seconds, 4),
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


def _logs_by_replica(pairs: Sequence[Pair]) -> dict[int, list[float]]:
    logs: dict[int, list[float]] = {}
    for pair in pairs:
        logs.setdefault(pair.replica, []).append(math.log(pair.candidate / pair.source))
    return logs


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
