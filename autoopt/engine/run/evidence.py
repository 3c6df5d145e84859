"""All latency measurements of a run's candidates, pooled: ratios, their certainty, and the figures to show."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from autoopt.engine.work.evaluations import SHARED, Measurements
from autoopt.engine.work.meter_runs import MEASUREMENT, Rounds
from autoopt.json_codec import JsonValue
from autoopt.measure.request import EXECUTED_GRAPH, SAME_GRAPH, WORK
from autoopt.measure.two_ratios import CONTENTION, TwoRatios, error_of
from autoopt.metrics import (
    GENERATION,
    MEDIAN_LATENCY,
    NORMAL,
    PER_INFERENCE,
    STEADY_STATE,
    Estimate,
    Objective,
)
from autoopt.model.candidate import Candidate
from autoopt.problem.problem import Goal
from autoopt.store import EvaluationRecord
from autoopt.tuning import RACE, TIMING

if TYPE_CHECKING:
    import numpy as np

    from autoopt.measure.intervals.pooling import Observation, Pooled

ROUNDING: Final = 1e-9
"""Difference of equal logarithms after other sums."""


@dataclass
class Evidence:
    """The measurements of several candidates, and the posterior of their ratios to the source."""

    rounds: Rounds
    baseline: Mapping[str, Estimate] = field(default_factory=dict)
    """Metrics of the source model that ratios refer to; by default those measured beside the candidate."""
    _pooled: dict[str, Pooled] = field(default_factory=dict)
    _observed: dict[str, list[Observation]] = field(default_factory=dict)
    _subjects: dict[str, str] = field(default_factory=dict)
    _records: dict[str, list[EvaluationRecord]] = field(default_factory=dict)

    def load(self, candidates: Iterable[Candidate]) -> None:
        """Look up what the store has of these candidates."""
        self.rounds.load(candidates)
        self._clear_caches()

    def measure(self, candidates: Sequence[Candidate], settings: Mapping[str, JsonValue]) -> bool:
        """Measure candidates in turns once more; false if none could be measured. May raise `TimeUp`."""
        try:
            return self.rounds.measure(candidates, settings)
        finally:
            self._clear_caches()

    def _clear_caches(self) -> None:
        for cache in (self._pooled, self._observed, self._subjects, self._records):
            cache.clear()

    def records(self, candidate: str) -> list[EvaluationRecord]:
        """The successful measurements of the candidate with this key, and of those that do the same work."""
        if candidate not in self._records:
            subject = self.subject(candidate)
            twins = [key for key in self.rounds.records if key != candidate and self.subject(key) == subject]
            records: list[EvaluationRecord] = []
            for key in (*twins, candidate):
                records += self.rounds.good(key)
            self._records[candidate] = _distinct(records)
        return self._records[candidate]

    def rounds_of(self, candidate: str) -> int:
        """Number of rounds that measured this candidate, without its trial."""
        return sum(MEASUREMENT in record.details for record in self.records(candidate))

    def is_on_one_thread(self, candidate: str) -> bool:
        """True if a measurement of this candidate was also made on one thread, because others disturbed several."""
        both = [TwoRatios.of(record.details) for record in self.records(candidate)]
        return any(each is not None and not each.has_free_cores for each in both)

    def lasting_error(self, candidate: str, metric: str) -> float:
        """The error of this candidate's ratio that no repetition reduces while the machine stays as it was last.

        Beside other programs caches are shared, and of several threads only the ratio on one repeats, which is another.
        """
        records = self.records(candidate)
        if not records:
            return 0.0
        details, ratio = _details_of(records[-1], metric), records[-1].ratios.get(metric)
        both = TwoRatios.of(details)
        if both is not None:
            return both.difference if both.disturbance or both.has_free_cores else 0.0
        return 0.0 if ratio is None else _contention_error(details, ratio)

    def equals_source(self, candidate: str) -> bool:
        """True if the runtime executes the source's graph for the candidate: its ratio is 1 by construction."""
        return any(record.details.get(SAME_GRAPH) for record in self.rounds.good(candidate))

    def has(self, candidate: str, metric: str) -> bool:
        """True if this metric's ratio to the source was measured, and could be another than 1."""
        if self.equals_source(candidate):
            return False
        return any(_is_positive(record.ratios.get(metric)) for record in self.records(candidate))

    def draws(self, candidate: str, metric: str) -> np.ndarray:
        """Draws from the posterior of the logarithmic ratio."""
        return self._posterior(candidate, metric).of(self.subject(candidate))

    def losses(self, candidate: str, objective: Objective) -> np.ndarray:
        """Draws of how much worse than the source the candidate is in an objective, as a logarithm."""
        draws = self.draws(candidate, objective.metric)
        if objective.goal == "maximize":
            draws = -draws
        return draws

    def estimate(self, candidate: str, metric: str) -> Estimate:
        """The ratio to the source, as it is to hold in the user's process too."""
        return self._posterior(candidate, metric).estimate(self.subject(candidate), self._beyond(metric))

    def _beyond(self, metric: str) -> float:
        """Half-width, in logarithms, of the differences between this process and the user's."""
        if metric not in PER_INFERENCE or MEDIAN_LATENCY not in self.baseline:
            return TIMING.beyond_processes
        return math.hypot(TIMING.beyond_processes, NORMAL * RACE.heap_ms / self.baseline[MEDIAN_LATENCY].value)

    def subject(self, candidate: str) -> str:
        """The name under which measurements count together: that of the runtime's work or graph, if it is known."""
        if candidate not in self._subjects:
            records = self.rounds.good(candidate)
            graphs = [record.details.get(WORK) or record.details.get(EXECUTED_GRAPH) for record in records]
            self._subjects[candidate] = next((str(graph) for graph in graphs if graph), candidate)
        return self._subjects[candidate]

    def is_narrow(self, candidate: str, metric: str, gain_share: float = 0.0, *, on_this_machine: bool = True) -> bool:
        """True if the ratio is known well enough, or was not measured.

        `gain_share` is the half-width relative to the gain, in logarithms, that is enough too. So is what can be known
        `on_this_machine`, as it was last.
        """
        if not self.has(candidate, metric):
            return True
        estimate = self.estimate(candidate, metric)
        floor = 0.0
        if on_this_machine:
            floor = RACE.floor_factor * NORMAL * self.lasting_error(candidate, metric)
        half_width = max(RACE.half_width, floor, gain_share * abs(math.log(estimate.value)))
        return estimate.high - estimate.low <= 2 * half_width * estimate.value

    def foreseen_change(self, candidate: str, other: str, objective: Objective, rounds: int) -> float:
        """Standard deviation by which further rounds will change the mean difference of two candidates' losses.

        Of a variance v after n equal measurements, k more leave v * n / (n + k). Lasting errors stay.
        """
        difference = self.losses(candidate, objective) - self.losses(other, objective)
        mine, others = (self.lasting_error(key, objective.metric) for key in (candidate, other))
        are_together = self._posterior(candidate, objective.metric) is self._posterior(other, objective.metric)
        common = TIMING.common if are_together else 0.0
        lasting = mine**2 + others**2 - 2 * common * min(mine, others) ** 2
        measured = min(len(self.records(candidate)), len(self.records(other)))
        reducible = max(0.0, float(difference.var()) - lasting)
        return math.sqrt(reducible * rounds / (measured + rounds))

    def is_exhausted(self, candidate: str, metric: str) -> bool:
        """True if at least half of the variance of the ratio is an error that no repetition reduces."""
        estimate = self.estimate(candidate, metric)
        lasting_width = 2 * NORMAL * self.lasting_error(candidate, metric) * estimate.value
        return (estimate.high - estimate.low) ** 2 <= 2 * lasting_width**2

    def cautious_ratio(self, candidate: str, objective: Objective) -> float:
        """The ratio, worse by its standard deviation: of two that look alike the better known one is preferred."""
        draws = self.losses(candidate, objective)
        ratio = math.exp(draws.mean() + draws.std())
        return 1 / ratio if objective.goal == "maximize" else ratio

    def gains(self, candidate: str, objective: Objective) -> bool:
        """True if the candidate is certainly better than the source in an objective, in the user's process too."""
        return self.estimate(candidate, objective.metric).is_gain(objective.goal)

    def measurements(self, candidate: str) -> Measurements:
        """All measurements of a candidate as one; its figures are pooled, and the source's are the baseline's."""
        records = self.records(candidate)
        measurements = Measurements.of(records)
        for name in measurements.ratios:
            if self.has(candidate, name):
                measurements.ratios[name] = self.estimate(candidate, name)
        source = pooled_values([record.source_metrics for record in records], self.baseline)
        times: dict[str, Estimate] = {}
        for name in STEADY_STATE:
            if name in source and name in measurements.ratios:
                # The ratio is known more exactly than the candidate's own time.
                times[name] = product(measurements.ratios[name], source[name])
        measurements.source = source
        measurements.metrics = pooled_values([record.metrics for record in records], times)
        return measurements

    def _posterior(self, candidate: str, metric: str) -> Pooled:
        """The posterior of all candidates, or that of this one alone if the others move it beyond its own measurements.

        Candidates measured in turns share what the state of the machine adds to their ratios. A state that slows the
        source's threads adds it only to those that run on one.
        """
        from autoopt.measure.intervals.pooling import pool  # imports numpy

        subject, together = self.subject(candidate), self._pool(metric)
        own = [each for each in self._observations(metric) if each.candidate == subject]
        low = min(each.log - each.deviation for each in own)
        high = max(each.log + each.deviation for each in own)
        if low - ROUNDING <= together.mean(subject) <= high + ROUNDING:
            return together
        key = f"{metric} of {subject}"
        if key not in self._pooled:
            # With draws of their own: two candidates alone err independently.
            self._pooled[key] = pool(own, self._usual_scale(), seed=zlib.crc32(subject.encode()))
        return self._pooled[key]

    def _pool(self, metric: str) -> Pooled:
        """The posterior of all candidates that have this metric."""
        from autoopt.measure.intervals.pooling import pool  # imports numpy

        if metric not in self._pooled:
            self._pooled[metric] = pool(self._observations(metric), self._usual_scale())
        return self._pooled[metric]

    def _observations(self, metric: str) -> list[Observation]:
        """Read all measurements of candidates as observations of their ratios."""
        if metric in self._observed:
            return self._observed[metric]
        subjects: dict[str, list[EvaluationRecord]] = {}
        for key, records in self.rounds.records.items():
            if not self.equals_source(key):
                subjects.setdefault(self.subject(key), []).extend(records)
        observations: list[Observation] = []
        for subject, records in subjects.items():
            observations += _observations_of_all(subject, _distinct(records), metric)
        self._observed[metric] = observations
        return observations

    def _usual_scale(self) -> float:
        """The usual change of a ratio from one measurement to the next, judged by how the source's time changed."""
        import numpy as np

        times: list[float] = []
        for records in self.rounds.records.values():
            latencies = [record.source_metrics.get(MEDIAN_LATENCY) for record in records]
            times += [latency.value for latency in latencies if latency is not None]
        if len(times) < 3:
            return TIMING.usual_scale
        low, high = np.quantile(np.log(times), [0.25, 0.75])
        return max(TIMING.usual_scale, RACE.pace_share * float(high - low) / 1.35)


def judge_again(goal: Goal, first: Measurements, evidence: Measurements) -> Measurements:
    """The first measurements with the pooled latencies in place of the first ones, and the constraints judged."""
    measurements = replace(
        first,
        metrics=first.metrics | evidence.metrics,
        ratios=first.ratios | evidence.ratios,
        source=first.source | evidence.source,
        details=first.details | evidence.details,
        keys=list(dict.fromkeys([*first.keys, *evidence.keys])),
        disturbed=first.disturbed or evidence.disturbed,
        verdicts=[],
    )
    measurements.judge(goal, measurements.metrics)
    return measurements


def pooled_values(
    measured: Sequence[Mapping[str, Estimate]], known: Mapping[str, Estimate] = MappingProxyType({})
) -> dict[str, Estimate]:
    """Pool the estimates of separate measurements, by name; names that one of them lacks are left out.

    A known value is not pooled.
    """
    values: dict[str, Estimate] = {}
    for name in measured[0] if measured else ():
        if name in known:
            values[name] = known[name]
        elif all(name in estimates for estimates in measured):
            values[name] = pooled_value([estimates[name] for estimates in measured])
    return values


def pooled_value(estimates: Sequence[Estimate]) -> Estimate:
    """Pool separate measurements of one value; equal ones, and values that are not positive, stay as they are."""
    if all(estimate == estimates[0] for estimate in estimates) or not all(map(_is_positive, estimates)):
        return estimates[0]
    from autoopt.measure.intervals.pooling import observation, pool  # imports numpy

    return pool([observation("", str(number), value) for number, value in enumerate(estimates)]).estimate("")


def _distinct(records: Sequence[EvaluationRecord]) -> list[EvaluationRecord]:
    """The records without those that share the figures of another one of them."""
    keys = {record.key for record in records}
    distinct: list[EvaluationRecord] = []
    for record in records:
        original = record.details.get(SHARED, record.key)
        if original == record.key or original not in keys:
            distinct.append(record)
            keys.add(original)
    return distinct


def _observations(candidate: str, record: EvaluationRecord, metric: str) -> list[Observation]:
    """Read what a measurement says about a candidate's ratio: nothing, or one or two ratios."""
    from autoopt.measure.intervals.pooling import observation  # imports numpy

    ratio = record.ratios.get(metric)
    if not record.outcome.good or ratio is None or not _is_positive(ratio):
        return []
    measurement = str(record.details.get(MEASUREMENT, record.details.get(SHARED, record.key)))
    shared = float(record.details.get("shared_variance", 0.0))
    both = _two_ratios(record, metric)
    if both is None:
        lasting = _contention_error(_details_of(record, metric), ratio)
        by_clock = observation(candidate, measurement, ratio, shared)
        unbiased = math.sqrt(max(0.0, by_clock.deviation**2 - lasting**2))
        return [replace(by_clock, deviation=unbiased, bias=lasting)]
    if both.has_free_cores:
        return [replace(observation(candidate, measurement, both.middle, shared), bias=both.difference)]
    on_one_thread = observation(candidate, f"{measurement} on one thread", both.expected)
    by_clock = observation(candidate, measurement, both.by_clock, shared)
    by_clock = replace(by_clock, bias=both.disturbance)
    return [by_clock, replace(on_one_thread, bias=both.difference)]


def _observations_of_all(candidate: str, records: Sequence[EvaluationRecord], metric: str) -> list[Observation]:
    """Read what all measurements of a candidate say about its ratio.

    Those with free cores have one bias. Each by itself would be smaller where the clock erred towards the ratio on one
    thread and would count for more, and the range would not reach the ratio on free cores.
    """
    observations: list[Observation] = []
    with_free_cores: list[Observation] = []
    for record in records:
        both = _two_ratios(record, metric)
        is_free = both is not None and both.has_free_cores
        (with_free_cores if is_free else observations).extend(_observations(candidate, record, metric))
    bias = sum(each.bias for each in with_free_cores) / max(1, len(with_free_cores))
    return observations + [replace(each, bias=bias) for each in with_free_cores]


def _two_ratios(record: EvaluationRecord, metric: str) -> TwoRatios | None:
    """The ratios by the clock and on one thread of a measurement; None if there was no need for the second."""
    if metric not in (MEDIAN_LATENCY, *GENERATION):
        return None
    return TwoRatios.of(_details_of(record, metric))


def _details_of(record: EvaluationRecord, metric: str) -> Mapping[str, Any]:
    """The details of how a metric was measured: the steps of a generation have their own, and the prompt of a set."""
    return record.details.get(metric, record.details) if metric in GENERATION else record.details


def _contention_error(details: Mapping[str, Any], ratio: Estimate) -> float:
    """The error that other programs added to a ratio."""
    return error_of(ratio.value, float(details.get(CONTENTION, 0.0)))


def _is_positive(estimate: Estimate | None) -> bool:
    return estimate is not None and estimate.low > 0


def product(ratio: Estimate, source: Estimate) -> Estimate:
    """The product with the relative interval of the ratio."""
    return Estimate(ratio.value * source.value, ratio.low * source.value, ratio.high * source.value)
