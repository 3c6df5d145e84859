"""The meters that a candidate needs, each with the key of its result; their calls, and the records of the answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoopt.data import DataConfig
from autoopt.data.digest import GENERATED
from autoopt.engine.work.calls import CallTerms, guarded_call
from autoopt.engine.work.context import RunContext
from autoopt.json_codec import JsonValue
from autoopt.measure.meters import CUSTOM, Meter, meters_for
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import MEDIAN_LATENCY
from autoopt.model.candidate import Candidate, digest_json
from autoopt.model.model_file import ModelFile
from autoopt.model.model_set import MODEL_SET
from autoopt.outcome import Cause, Outcome
from autoopt.problem.content_keys import EvaluationInput, evaluation_key
from autoopt.problem.environment import environment
from autoopt.problem.hosts import HostReply
from autoopt.problem.problem import DataSource, Goal
from autoopt.problem.quarantine import SHORT, Subject
from autoopt.store import EvaluationRecord
from autoopt.store.records import MEMORY, TRANSIENT
from autoopt.tuning import TIMING
from autoopt.workers import CallResult

PAGE = 8
"""Rounds that are looked up at a time."""
MEASUREMENT = "measurement"
"""The entry of a record's details with the id of the measurement; candidates measured in turns have the same."""


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of one evaluation."""

    metrics: tuple[str, ...] | None = None
    """Names of the metrics to measure; None for all of the run's."""
    settings: Mapping[str, JsonValue] = field(default_factory=dict)
    """Settings for the meters that override the run's."""
    incumbent: float | None = None
    """Latency ratio of the best candidate so far; measuring a clearly slower one stops early."""
    judged: bool = True
    """Judge the constraints, and stop at a broken one."""
    screened: bool = False
    """Measure only as exactly as a search needs, and stop only at a constraint that is certainly broken."""
    drops_slow: bool = False
    """The latency decides, and the source meets the constraints: what is far slower need not be measured completely."""
    occasion: str = ""
    """Distinguishes repeated measurements of a candidate, such as on two nights."""
    round: int = 0
    """Number of the repeated measurement on this occasion; 0 for the first."""

    def names(self, goal: Goal) -> tuple[str, ...]:
        """The metrics to measure."""
        if self.metrics is not None:
            return self.metrics
        return tuple(metric.name for metric in goal.metrics)

    @property
    def repetition(self) -> dict[str, JsonValue]:
        """Settings of a repeated measurement; the first has none, so that every run finds it under the same key."""
        settings: dict[str, JsonValue] = {}
        if self.occasion:
            settings["occasion"] = self.occasion
        if self.round:
            settings["round"] = self.round
        return settings


@dataclass(frozen=True)
class MeterRun:
    """One meter on one candidate, under the key of its result."""

    meter: Meter
    work: EvaluationInput
    settings: Mapping[str, JsonValue]
    """Those of the call; of the repetition, `work` knows the number."""
    data: DataSource
    key: str
    incumbent: float | None
    is_brief: bool
    """Further measurements follow, at least if the candidate may be the best."""
    is_first_look: bool
    """It may reuse open sessions of the source, of which the others have the error too."""

    @property
    def candidate(self) -> Candidate:
        return self.work.candidate

    def graph_key(self, graph: str) -> str:
        """The key that evaluations have of all candidates for which the runtime executes the graph of this digest."""
        return evaluation_key(self.meter, replace(self.work, candidate=Candidate(graph)))


def meter_runs(ctx: RunContext, candidate: Candidate, options: EvaluationOptions) -> Iterator[MeterRun]:
    """The meters for the metrics, cheap ones first.

    A key is known before anything is measured, so that the store can be asked. It covers what the figures depend on,
    but not what only steers the call, such as the incumbent at which measuring may stop.
    """
    problem = ctx.problem
    names = options.names(problem.goal)
    constraints = problem.goal.constraints if options.judged else None
    is_repeated = problem.measurement_settings.is_repeated
    has_few_sessions = problem.measurement_settings.replicas <= TIMING.screening_replicas
    for meter in meters_for(names, problem.goal.custom):
        settings = meter.settings_for(problem.measurement, constraints, screened=options.screened)
        settings.update(options.settings)
        data = _data_for(ctx, meter)
        work = EvaluationInput(
            metrics=tuple(name for name in meter.metrics if name in names),
            candidate=candidate,
            source=problem.source,
            target=problem.target,
            data=_digest_for(meter, data),
            settings=settings | options.repetition,
            script=problem.script.content,
            runtime=measuring_runtime(ctx),
        )
        yield MeterRun(
            meter=meter,
            work=work,
            settings=settings,
            data=data,
            key=evaluation_key(meter, work),
            incumbent=options.incumbent,
            is_brief=(options.screened or options.round > 0) and is_repeated,
            is_first_look=options.screened and (is_repeated or has_few_sessions),
        )


def _data_for(ctx: RunContext, meter: Meter) -> DataSource:
    data = ctx.problem.data
    data_sets = {"evaluation": data.evaluation, "latency": data.latency}
    return next((data_sets[role] for role in meter.data if data_sets[role]), DataSource())


def _digest_for(meter: Meter, data: DataSource) -> str:
    """The digest of the data of a meter; empty for one that needs none."""
    if data.digest or not meter.data:
        return data.digest
    return GENERATED


def measuring_runtime(ctx: RunContext) -> tuple[str, ...] | None:
    """Versions of onnxruntime and numpy that measure; None for this interpreter."""
    runtime = ctx.problem.runtime
    if not runtime:
        return None
    return str(runtime["onnxruntime"]), str(runtime["numpy"])


def measure(ctx: RunContext, request: MeasureRequest, meter_run: MeterRun, limit: float) -> EvaluationRecord:
    """Measure a candidate now; `limit` is in seconds. The record is not stored yet."""
    answer = call_meter(ctx, request, meter_run, limit)
    record = evaluation_record(ctx, meter_run, answer.result, answer.reply or MeasureReply())
    if MEDIAN_LATENCY in record.source_metrics:
        ctx.attempt.source_latencies.append(record.source_metrics[MEDIAN_LATENCY].value)
    return record


def request_to_meter(ctx: RunContext, meter_run: MeterRun, rivals: Sequence[Candidate] = ()) -> MeasureRequest:
    """The request to a meter, with hints from what was measured so far."""
    problem, meter = ctx.problem, meter_run.meter
    hints = {"incumbent_ratio": meter_run.incumbent, "source_ms": ctx.attempt.usual_source_ms()}
    settings = {**meter.hints_from(hints), **meter_run.settings}
    data = meter_run.data.config
    source = _model_file(ctx, problem.source)
    # Only custom metrics and the pipelines of sets are the user's code; the other meters do not share its worker.
    return MeasureRequest(
        candidate=_model_file(ctx, meter_run.candidate),
        source=source,
        rivals=tuple(_model_file(ctx, rival) for rival in rivals),
        metrics=meter_run.work.metrics,
        data=DataConfig.parse(data) if data else None,
        data_digest=meter_run.data.digest,
        target=problem.target,
        settings=MeasurementSettings.parse(settings),
        user_script=problem.script.path if meter.name == CUSTOM.name or Path(source.path).name == MODEL_SET else None,
        brief=meter_run.is_brief,
        reuses_source=meter_run.is_first_look,
    )


def _model_file(ctx: RunContext, candidate: Candidate) -> ModelFile:
    return ModelFile(ctx.model_path(candidate), candidate.session_options)


def call_meter(
    ctx: RunContext, request: MeasureRequest, meter_run: MeterRun, limit: float, rivals: Sequence[Candidate] = ()
) -> HostReply[MeasureReply]:
    """Measure a candidate now, in turns with its rivals, which the request names; `limit` is in seconds."""
    meter, attempt = meter_run.meter, ctx.attempt
    attempt.observer.on_measure_start(meter.name)
    terms = CallTerms(
        subject=subject_of(ctx, meter_run, rivals),
        limit=limit,
        phase="measuring" if meter.exclusive else "quality",
        exclusive=meter.exclusive,
    )
    host = ctx.resources.hosts.of(ctx.problem.host)
    answer = guarded_call(ctx, host, terms, lambda limits: host.evaluate_model(meter, request, limits))
    meter_run.data.check_unchanged()
    ctx.problem.script.check_unchanged()
    attempt.observer.on_measure_end(meter.name, answer.result.outcome, answer.result.seconds)
    return answer


def subject_of(ctx: RunContext, meter_run: MeterRun, rivals: Sequence[Candidate]) -> Subject:
    """A meter on these models. If there are several, no single one is to blame for a death."""
    models = [candidate.key for candidate in (meter_run.candidate, *rivals)]
    meter = meter_run.meter
    content = [meter.name, meter.version, ctx.problem.script.content, measuring_runtime(ctx), models]
    return Subject(digest_json(content), f"{meter.name} of model {meter_run.candidate.artifact[:SHORT]}")


def evaluation_record(
    ctx: RunContext, meter_run: MeterRun, result: CallResult, reply: MeasureReply
) -> EvaluationRecord:
    """The record of a meter's answer."""
    details = dict(reply.details)
    if result.cause is not Cause.WORK:
        details[TRANSIENT] = True
        details["disturbed"] = True
    recorded = dict(environment())
    if result.outcome is Outcome.OUT_OF_MEMORY:
        recorded[MEMORY] = ctx.attempt.retry.memory
    if ctx.problem.runtime:
        recorded["measured by"] = dict(ctx.problem.runtime)
    return EvaluationRecord(
        key=meter_run.key,
        candidate=meter_run.candidate,
        meter=meter_run.meter.name,
        outcome=result.outcome,
        metrics=dict(reply.metrics),
        source_metrics=dict(reply.source_metrics),
        ratios=dict(reply.ratios),
        details=details,
        seconds=result.seconds,
        message=result.message,
        environment=recorded,
        run=ctx.run,
    )


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
        """Look up what the store has of these candidates, page by page."""
        for candidate in candidates:
            self.records[candidate.key] = []
            self._next_numbers[candidate.key] = 1  # the number 0 is left to the trial
            for first in itertools.count(step=PAGE):
                keys = [self._meter_run(candidate, first + number, {}).key for number in range(PAGE)]
                stored = self.ctx.store.results.evaluations(keys)
                for number, key in enumerate(keys, first):
                    if key in stored:
                        self.records[candidate.key].append(stored[key])
                        self._next_numbers[candidate.key] = number + 1
                if keys[-1] not in stored:
                    break

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
