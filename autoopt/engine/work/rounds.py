"""Latency measured in rounds: several candidates in turns in one process, and everything that the store has of them.

The first measurement of a candidate is its trial's. Each round adds another one under a key of its own, so that later
runs find all of them and add to what is not decided yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoopt.engine.work.context import RunContext
from autoopt.engine.work.meter_runs import (
    EvaluationOptions,
    MeterRun,
    call_meter,
    evaluation_record,
    meter_runs,
    request_to_meter,
)
from autoopt.json_codec import JsonValue
from autoopt.measure.request import MeasureReply
from autoopt.metrics import MEDIAN_LATENCY
from autoopt.model.candidate import Candidate
from autoopt.store import EvaluationRecord

PAGE = 8
"""Rounds that are looked up at a time."""
MEASUREMENT = "measurement"
"""The entry of a record's details with the id of the measurement; candidates measured in turns have the same."""


@dataclass
class Rounds:
    """The rounds of several candidates on one occasion."""

    ctx: RunContext
    metrics: tuple[str, ...]
    """Latency metrics."""
    occasion: str = ""
    """Distinguishes these rounds from the rounds of other runs, such as another night's."""
    records: dict[str, list[EvaluationRecord]] = field(default_factory=dict)
    """All measurements of each candidate, the failed ones too, by its key."""
    failed: set[str] = field(default_factory=set)
    """Keys of the candidates whose last measurement alone failed in this process."""
    _next_numbers: dict[str, int] = field(default_factory=dict)

    def load(self, candidates: Iterable[Candidate]) -> None:
        """Look up what the store has of these candidates."""
        for candidate in candidates:
            self._load(candidate)

    def _load(self, candidate: Candidate) -> None:
        records: list[EvaluationRecord] = []
        # The number 0 is left to the trial.
        next_number, first = 1, 0
        while True:
            keys = [self._meter_run(candidate, first + number, {}).key for number in range(PAGE)]
            stored = self.ctx.store.results.evaluations(keys)
            for number, key in enumerate(keys):
                if key in stored:
                    records.append(stored[key])
                    next_number = max(next_number, first + number + 1)
            if keys[-1] not in stored:
                break
            first += PAGE
        self.records[candidate.key] = records
        self._next_numbers[candidate.key] = next_number

    def good(self, candidate: str) -> list[EvaluationRecord]:
        """The measurements of a candidate that succeeded."""
        return [record for record in self.records.get(candidate, ()) if record.outcome.good]

    def measure(self, candidates: Sequence[Candidate], settings: Mapping[str, JsonValue]) -> bool:
        """Measure candidates in turns once more; each alone if that fails.

        The candidates were loaded before; there is at least one. `settings` override the run's.

        Returns:
            False if none could be measured.

        Raises:
            TimeUp: The run's time is over.
        """
        meter_run, *others = [
            self._meter_run(candidate, self._next_numbers[candidate.key], settings) for candidate in candidates
        ]
        limit = meter_run.meter.time_limit(self.ctx.problem.limits.measure_seconds, meter_run.settings)
        rivals = [other.candidate for other in others]
        request = request_to_meter(self.ctx, meter_run, rivals)
        answer = call_meter(self.ctx, request, meter_run, limit, rivals)
        if others and not answer.result.outcome.good:
            measured = [self.measure([candidate], settings) for candidate in candidates]
            return any(measured)
        if not answer.result.outcome.good:
            self.failed.add(meter_run.candidate.key)
        reply = answer.reply or MeasureReply()
        for single, single_reply in zip((meter_run, *others), (reply, *reply.rivals), strict=True):
            details = {**single_reply.details, MEASUREMENT: meter_run.key}
            record = evaluation_record(self.ctx, single, answer.result, replace(single_reply, details=details))
            self.ctx.store.results.finish_evaluation(record)
            self.records[single.candidate.key].append(record)
            self._next_numbers[single.candidate.key] += 1
            self.ctx.attempt.counts.add_executed("evaluations")
        if MEDIAN_LATENCY in reply.source_metrics:
            self.ctx.attempt.source_latencies.append(reply.source_metrics[MEDIAN_LATENCY].value)
        return answer.result.outcome.good

    def _meter_run(self, candidate: Candidate, number: int, settings: Mapping[str, JsonValue]) -> MeterRun:
        options = EvaluationOptions(
            metrics=self.metrics, judged=False, screened=number == 0, occasion=self.occasion, round=number
        )
        (meter_run,) = meter_runs(self.ctx, candidate, options)
        return replace(meter_run, settings={**meter_run.settings, **settings})
