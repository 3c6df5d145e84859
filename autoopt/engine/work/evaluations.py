"""Measure a candidate: cheap meters first, each result looked up by its key before it is measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autoopt.engine.work import equal_graphs
from autoopt.engine.work.attempt import claim_or_wait, released_on_error
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.measurements import Measurements
from autoopt.engine.work.meter_order import is_too_slow
from autoopt.engine.work.meter_runs import EvaluationOptions, MeterRun, measure, meter_runs, request_to_meter
from autoopt.errors import TimeUp
from autoopt.measure.meters import Meter
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import EvaluationRecord


def evaluate(ctx: RunContext, candidate: Candidate, options: EvaluationOptions | None = None) -> Measurements:
    """Measure a candidate beside the source model, up to the first failure or broken constraint."""
    options = options or EvaluationOptions()
    measurements = Measurements()
    for meter_run in _in_order(ctx, meter_runs(ctx, candidate, options), options):
        try:
            record, executed = _look_up_or_measure(ctx, meter_run)
        except TimeUp as error:
            measurements.outcome = Outcome.TIMEOUT
            measurements.message = f"{meter_run.meter.name}: {error}"
            break
        measurements.add(record)
        measurements.executed += executed
        if executed:
            ctx.attempt.meter_statistics.add_time(record.meter, record.seconds)
        if not record.outcome.good:
            break
        if options.judged and _is_rejected(ctx, measurements, record, options):
            break
    return measurements


def _in_order(ctx: RunContext, runs: Iterator[MeterRun], options: EvaluationOptions) -> Iterable[MeterRun]:
    """Sort meters by their time until they reject a candidate, where each of them may do so and its time is known.

    Those come first whose results are in the store.
    """
    if not options.drops_slow:
        return runs
    ordered = list(runs)
    seconds = {run.key: _seconds_per_rejection(ctx, run.meter) for run in ordered}
    if None in seconds.values():
        seconds = dict.fromkeys(seconds, 0.0)
    stored = ctx.store.results.evaluations([run.key for run in ordered])
    return sorted(ordered, key=lambda run: (run.key not in stored, seconds[run.key]))


def _seconds_per_rejection(ctx: RunContext, meter: Meter) -> float | None:
    """The time of all trials that a meter takes for each candidate that it rejects; None if it was never called."""
    seconds = ctx.attempt.meter_statistics.seconds_per_rejection(meter.name)
    if seconds is None:
        return None
    return seconds * (ctx.attempt.workers if meter.exclusive else 1)  # all trials wait for an exclusive meter


def _is_rejected(
    ctx: RunContext, measurements: Measurements, record: EvaluationRecord, options: EvaluationOptions
) -> bool:
    """Judge a candidate by what a meter has just measured; true if it cannot win."""
    goal = ctx.problem.goal
    measurements.judge(goal, record.metrics)
    if options.drops_slow:
        measurements.too_slow = is_too_slow(goal, record.ratios)
    rejected = measurements.is_settled(screened=options.screened) or measurements.too_slow
    ctx.attempt.meter_statistics.add_decision(record.meter, rejected=rejected)
    return rejected


def _look_up_or_measure(ctx: RunContext, meter_run: MeterRun) -> tuple[EvaluationRecord, bool]:
    """The record of one evaluation, and True if it was measured now."""
    store, attempt, key = ctx.store, ctx.attempt, meter_run.key
    with ctx.resources.locks.holding(key):
        stored = store.results.evaluation(key)
        record = attempt.reusable(stored)
        limit = meter_run.meter.time_limit(ctx.problem.limits.measure_seconds, meter_run.settings)
        redo = stored is not None
        if record is None and not claim_or_wait(store, attempt, "evaluation", key, limit, redo=redo):
            record = store.results.evaluation(key)
        if record is not None:
            attempt.counts.add_reused("evaluations")
            return record, False
        with released_on_error(store, "evaluation", key):
            if meter_run.meter.name in equal_graphs.METERS:
                record, executed = equal_graphs.measure_graph(ctx, meter_run, limit)
            else:
                record, executed = measure(ctx, request_to_meter(ctx, meter_run), meter_run, limit), True
                store.results.finish_evaluation(record)
        if executed:
            attempt.counts.add_executed("evaluations")
        else:
            attempt.counts.add_reused("evaluations")
        return record, executed
