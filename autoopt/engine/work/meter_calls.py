"""Calls of meters in a worker: the request, the call, and the record of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autoopt.data import DataConfig
from autoopt.engine.work.calls import CallTerms, guarded_call, is_setup_failure
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.meter_runs import MeterRun, measuring_runtime
from autoopt.measure.meters import CUSTOM
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.memory import usable_memory
from autoopt.metrics import MEDIAN_LATENCY
from autoopt.model.candidate import Candidate, digest_json
from autoopt.model.model_file import ModelFile
from autoopt.model.model_set import MODEL_SET
from autoopt.outcome import Outcome
from autoopt.problem.environment import environment
from autoopt.store import EvaluationRecord
from autoopt.store.records import MEMORY, TRANSIENT
from autoopt.workers import CallResult
from autoopt.workers.hosts import HostReply
from autoopt.workers.quarantine import SHORT, Subject


def measure(ctx: RunContext, request: MeasureRequest, meter_run: MeterRun, limit: float) -> EvaluationRecord:
    """Measure a candidate now; `limit` is in seconds. The record is not stored yet."""
    answer = call_meter(ctx, request, meter_run, limit)
    record = evaluation_record(ctx, meter_run, answer.result, answer.reply or MeasureReply())
    if MEDIAN_LATENCY in record.source_metrics:
        ctx.attempt.source_latencies.add(record.source_metrics[MEDIAN_LATENCY].value)
    return record


def request_to_meter(ctx: RunContext, meter_run: MeterRun, rivals: Sequence[Candidate] = ()) -> MeasureRequest:
    """The request to a meter, with hints from what was measured so far."""
    problem, meter = ctx.problem, meter_run.meter
    hints = {"incumbent_ratio": meter_run.incumbent, "source_ms": ctx.attempt.source_latencies.typical()}
    settings = {**meter.hints_from(hints), **meter_run.settings}
    data = meter_run.data.config
    source = _model_file(ctx, problem.source)
    # Only custom metrics and the pipelines of sets are the user's code; the other meters do not share its worker.
    return MeasureRequest(
        candidate=_model_file(ctx, meter_run.candidate),
        source=source,
        rivals=tuple(_model_file(ctx, rival) for rival in rivals),
        metrics=meter_run.metrics,
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
    if result.transient or is_setup_failure(result.outcome, result.message):
        details[TRANSIENT] = True
        details["disturbed"] = True
    recorded = dict(environment())
    if result.outcome is Outcome.OUT_OF_MEMORY:
        recorded[MEMORY] = usable_memory(ctx.problem.limits.memory)
    runtime = ctx.resources.hosts.runtime_of(ctx.problem.host)
    if runtime:
        recorded["measured by"] = dict(runtime)
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
