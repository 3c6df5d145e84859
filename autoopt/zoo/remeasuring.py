"""Measure models of earlier sweeps again: the best model and the last good sweep's, beside the source."""

from __future__ import annotations

from dataclasses import replace

from autoopt.engine.prepare import Prepared
from autoopt.engine.run.evidence import judge_again
from autoopt.engine.run.race import measure_repeatedly
from autoopt.engine.run.select import stored_summary
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measurements, evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.errors import AutooptError
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.results import ModelResult, SweepEntry, values_of
from autoopt.results.sweep import BROKEN


def measure_again(session: Prepared, entry: SweepEntry, last_best: ModelResult | None, *, occasion: str) -> SweepEntry:
    """Return the entry with new figures of the source and the best model, and of `last_best` if that is another one.

    The entry's status changes if the best model now certainly breaks a constraint. `last_best` is the best model of the
    last good sweep; `occasion` names this sweep, so that a resumed one does not measure twice.
    """
    result = entry.result
    assert result is not None, "the entry of a model that has run"
    # The budget of minutes is for the search, which may have used it up.
    ctx = session.ctx.until(float("inf"))
    source = ctx.problem.source
    candidate = source if result.best is None else result.best.candidate
    measured, model = _measure(ctx, candidate, result.best or ModelResult(), occasion)
    if measured.outcome.good:
        figures = measured.metrics if candidate.key == source.key else measured.source
        before = result.baseline
        exact = {name: Estimate.exact(value) for name, value in before.metrics.items()}
        intervals = {**exact, **before.intervals, **figures}
        baseline = replace(before, metrics=values_of(intervals), intervals=intervals)
        result = replace(result, baseline=baseline.as_source)
        if result.best is not None:
            result = replace(result, best=model)
            entry = _judged(entry, measured)
        entry = replace(entry, result=result)
    if last_best is not None and last_best.candidate.key != candidate.key:
        entry = replace(entry, last_best=_measure_last_best(ctx, last_best, occasion))
    return entry


def _judged(entry: SweepEntry, measured: Measurements) -> SweepEntry:
    """Return the entry with another status if its best model certainly breaks a constraint."""
    for verdict in measured.verdicts:
        if verdict.status == "fails":
            reason = f"the best model, measured again, breaks a constraint: {verdict.reason}"
            return replace(entry, status=BROKEN, reason=reason)
    return entry


def _measure_last_best(ctx: RunContext, last_best: ModelResult, occasion: str) -> ModelResult | None:
    """The last best model with new figures; None if its artifact is gone or it no longer runs."""
    without_figures = replace(last_best, metrics={}, intervals={}, ratios={})
    try:
        measured, updated = _measure(ctx, last_best.candidate, without_figures, occasion)
    except AutooptError:
        return None
    return updated if measured.outcome.good else None


def _measure(
    ctx: RunContext, candidate: Candidate, model: ModelResult, occasion: str
) -> tuple[Measurements, ModelResult]:
    """Measure all metrics; latencies in rounds, like the best of a run, so that nights compare beyond the noise.

    Returns:
        The measurement, and `model` with its figures.
    """
    evidence = measure_repeatedly(ctx, candidate, occasion)
    latencies = Measurements()
    if evidence.rounds_of(candidate.key):
        latencies = evidence.measurements(candidate.key)
    others = [metric.name for metric in ctx.problem.goal.metrics if metric.name not in latencies.metrics]
    options = EvaluationOptions(metrics=tuple(others), judged=False, occasion=occasion)
    measured = judge_again(ctx.problem.goal, evaluate(ctx, candidate, options), latencies)
    summary, caveats = stored_summary(ctx, measured.keys)
    intervals = {**model.intervals, **measured.metrics}
    return measured, replace(
        model,
        metrics=values_of(intervals),
        intervals=intervals,
        ratios={**model.ratios, **measured.ratios},
        measured=summary,
        flags=(*measured.reasons, *caveats),
        unsure=measured.unsure,
    )
