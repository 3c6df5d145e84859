"""Measure a candidate: cheap meters first, each result looked up by its key before it is measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoopt.data import DataConfig
from autoopt.engine.work.calls import CallTerms, evaluate_model
from autoopt.engine.work.claims import claim_or_wait, released_on_timeout
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.environment import environment
from autoopt.engine.work.keys import EvaluationInput, evaluation_key
from autoopt.engine.work.problem import DataSource, Goal
from autoopt.errors import TimeUp
from autoopt.json_codec import JsonValue
from autoopt.measure.constraints import Verdict, judge
from autoopt.measure.meters import Meter, meters_for
from autoopt.measure.request import MeasureReply, MeasureRequest, ModelFile
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import MEDIAN_LATENCY, Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import EvaluationRecord


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
    occasion: str = ""
    """Tells repeated measurements of a candidate apart, such as those of two nights."""


@dataclass
class Measurements:
    """The measurements of one candidate, and what the constraints say about them."""

    metrics: dict[str, Estimate] = field(default_factory=dict)
    ratios: dict[str, Estimate] = field(default_factory=dict)
    source: dict[str, Estimate] = field(default_factory=dict)
    """Metrics of the source model, measured beside the candidate."""
    drops: dict[str, Estimate] = field(default_factory=dict)
    """Paired intervals of the drop against the source, by metric."""
    details: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """Course of the measurement, by meter."""
    outcome: Outcome = Outcome.OK
    message: str = ""
    verdicts: list[Verdict] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """Keys of the evaluations."""
    executed: int = 0
    """Number of evaluations that were measured rather than looked up."""
    disturbed: bool = False
    """True if another process used the machine while a latency was measured."""

    @staticmethod
    def of(records: Iterable[EvaluationRecord]) -> Measurements:
        """The measurements in these records together."""
        measurements = Measurements()
        for record in records:
            measurements.add(record)
        return measurements

    def add(self, record: EvaluationRecord) -> None:
        """Add the figures of one evaluation, or its failure."""
        self.keys.append(record.key)
        if not record.outcome.good:
            self.outcome = record.outcome
            self.message = f"{record.meter}: {record.message}"
            return
        self.metrics.update(record.metrics)
        self.ratios.update(record.ratios)
        self.source.update(record.source_metrics)
        self.drops.update(MeasureReply(details=record.details).drops)
        self.details[record.meter] = record.details
        if record.details.get("disturbed") or record.details.get("busy"):
            self.disturbed = True

    def judge(self, goal: Goal, names: Collection[str]) -> None:
        """Judge the constraints on these metrics."""
        for constraint in goal.constraints:
            name = constraint.metric
            if name in names and name in self.metrics:
                source, ratio = self.source.get(name), self.ratios.get(name)
                drop = self.drops.get(name)
                verdict = judge(constraint, goal.metric(name), self.metrics[name], source, ratio, drop)
                self.verdicts.append(verdict)

    @property
    def violation(self) -> float:
        """The largest violation of a constraint; feasible if <= 0."""
        return max((verdict.violation for verdict in self.verdicts), default=0.0)

    @property
    def worst(self) -> str:
        """The reason of the constraint with the largest violation; empty without constraints."""
        if not self.verdicts:
            return ""
        return max(self.verdicts, key=lambda verdict: verdict.violation).reason

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons of the constraints that fail or are uncertain."""
        return tuple(verdict.reason for verdict in self.verdicts if verdict.status != "holds")


@dataclass(frozen=True)
class _MeterRun:
    """One meter on one candidate."""

    meter: Meter
    metrics: tuple[str, ...]
    candidate: Candidate
    settings: Mapping[str, JsonValue]
    data: DataSource
    key: str
    incumbent: float | None


def evaluate(ctx: RunContext, candidate: Candidate, options: EvaluationOptions | None = None) -> Measurements:
    """Measure a candidate beside the source model, up to the first failure or broken constraint."""
    options = options or EvaluationOptions()
    measurements = Measurements()
    for meter_run in _meter_runs(ctx, candidate, options):
        try:
            record, executed = _look_up_or_measure(ctx, meter_run)
        except TimeUp as error:
            measurements.outcome = Outcome.TIMEOUT
            measurements.message = f"{meter_run.meter.name}: {error}"
            break
        measurements.add(record)
        measurements.executed += executed
        if not record.outcome.good:
            break
        if options.judged:
            measurements.judge(ctx.problem.goal, record.metrics)
            if measurements.violation > 0:
                break
    return measurements


def _meter_runs(ctx: RunContext, candidate: Candidate, options: EvaluationOptions) -> Iterator[_MeterRun]:
    """The meters for the metrics, cheap ones first."""
    problem = ctx.problem
    names = options.metrics
    if names is None:
        names = tuple(metric.name for metric in problem.goal.metrics)
    for meter in meters_for(names, problem.goal.custom):
        metrics = tuple(name for name in meter.metrics if name in names)
        settings = meter.settings_for(problem.measurement, problem.goal.constraints if options.judged else None)
        settings.update(options.settings)
        data = _data_for(ctx, meter)
        keyed_settings = dict(settings)
        if options.occasion:
            keyed_settings["occasion"] = options.occasion
        work = EvaluationInput(
            metrics=metrics,
            candidate=candidate,
            source=problem.source,
            target=problem.target,
            data=data.digest,
            settings=keyed_settings,
            script=problem.script.digest,
            runtime=_measuring_runtime(ctx),
        )
        key = evaluation_key(meter, work)
        yield _MeterRun(meter, metrics, candidate, settings, data, key, options.incumbent)


def _data_for(ctx: RunContext, meter: Meter) -> DataSource:
    data = ctx.problem.data
    data_sets = {"evaluation": data.evaluation, "latency": data.latency}
    return next((data_sets[role] for role in meter.data if data_sets[role]), DataSource())


def _measuring_runtime(ctx: RunContext) -> tuple[str, ...] | None:
    """Versions of onnxruntime and numpy that measure, and the CPU of another machine; None for this interpreter."""
    runtime = ctx.resources.hosts.runtime_of(ctx.problem.host)
    if not runtime:
        return None
    versions = (str(runtime["onnxruntime"]), str(runtime["numpy"]))
    cpu = runtime.get("cpu")
    if not cpu:
        return versions
    return (*versions, str(cpu["model"]), str(cpu["cores"]))


def _look_up_or_measure(ctx: RunContext, meter_run: _MeterRun) -> tuple[EvaluationRecord, bool]:
    """The record of one evaluation, and True if it was measured now."""
    store, attempt, key = ctx.store, ctx.attempt, meter_run.key
    with ctx.resources.locks.holding(key):
        record = attempt.reusable(store.results.evaluation(key))
        limit = meter_run.meter.time_limit(ctx.problem.limits.measure_seconds, meter_run.settings)
        if record is None and not claim_or_wait(store, attempt, "evaluation", key, limit):
            record = store.results.evaluation(key)
        if record is not None:
            attempt.counts.add_reused("evaluations")
            return record, False
        with released_on_timeout(store, "evaluation", key):
            record = _measure(ctx, meter_run, limit)
        if MEDIAN_LATENCY in record.source_metrics:
            attempt.source_latencies.add(record.source_metrics[MEDIAN_LATENCY].value)
        store.results.finish_evaluation(record)
        attempt.counts.add_executed("evaluations")
        return record, True


def _measure(ctx: RunContext, meter_run: _MeterRun, limit: float) -> EvaluationRecord:
    problem, attempt, meter = ctx.problem, ctx.attempt, meter_run.meter
    hints = {"incumbent_ratio": meter_run.incumbent, "source_ms": attempt.source_latencies.typical()}
    settings = {**meter.hints_from(hints), **meter_run.settings}
    attempt.observer.on_measure_start(meter.name)
    data, source = meter_run.data.config, problem.source
    request = MeasureRequest(
        candidate=ModelFile(ctx.model_path(meter_run.candidate), meter_run.candidate.session_options),
        source=ModelFile(ctx.model_path(source), source.session_options),
        metrics=meter_run.metrics,
        data=DataConfig.parse(data) if data else None,
        target=problem.target,
        settings=MeasurementSettings.parse(settings),
        user_script=problem.script.path,
    )
    terms = CallTerms(
        subject=meter_run.candidate.artifact,
        limit=limit,
        phase="measuring" if meter.exclusive else "quality",
        exclusive=meter.exclusive,
    )
    host = ctx.resources.hosts.of(problem.host)
    answer = evaluate_model(ctx, host, meter, request, terms)
    result, reply = answer.result, answer.reply or MeasureReply()
    attempt.observer.on_measure_end(meter.name, result.outcome, result.seconds)
    return EvaluationRecord(
        key=meter_run.key,
        candidate=meter_run.candidate,
        meter=meter.name,
        outcome=result.outcome,
        metrics=dict(reply.metrics),
        source_metrics=dict(reply.source_metrics),
        ratios=dict(reply.ratios),
        details=dict(reply.details),
        seconds=result.seconds,
        message=result.message,
        environment=_environment(ctx),
        run=ctx.run,
    )


def _environment(ctx: RunContext) -> dict[str, Any]:
    """This environment, and the one of the host that measured if it is another."""
    recorded = dict(environment())
    runtime = dict(ctx.resources.hosts.runtime_of(ctx.problem.host))
    runtime.pop("cpu", None)
    if runtime:
        recorded["measured by"] = runtime
    return recorded
