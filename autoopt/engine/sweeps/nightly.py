"""Measuring again what has been measured before: tonight's best model and the last good night's, beside the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from autoopt.engine.run.confirm import Confirmed, confirm, judged_again
from autoopt.engine.run.measurement_summary import account, account_of
from autoopt.engine.run.session import Session
from autoopt.engine.targets.multi_target import Targets
from autoopt.engine.work.evaluations import Measured, evaluate
from autoopt.errors import AutooptError
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.results import RunResult

BROKEN = "breaks a constraint"
"""Status of a model whose best, measured again, surely does."""


def measure_again(
    session: Session | Targets, result: RunResult, last_best: Mapping[str, Any] | None, *, occasion: str
) -> dict[str, Any]:
    """What a nightly sweep knows beyond the run: `best` and `baseline` with tonight's figures, and `last_best`, where
    that is another candidate; `status` and `reason` where the best surely breaks a constraint tonight.

    Args:
        last_best: the best model of the last good night, as its entry keeps it.
        occasion: the sweep, so that one that is resumed does not measure twice.
    """
    known: dict[str, Any] = {}
    session.ctx.deadline = float("inf")  # the minutes are the search's, which may have used them up
    best = result.best
    first = Candidate(best.artifact, best.session_options) if best else session.ctx.source
    measured, how = _measure(session, first, occasion)
    baseline = dict(result.baseline)
    if measured.outcome.good:
        source = measured.metrics if first.key == session.ctx.source.key else measured.source
        known["baseline"] = {**baseline, **_figures({**_estimates(baseline), **source})}
        if best:
            known["best"] = {**best.to_json(), **_model(measured, best.intervals, best.ratios), **how}
        fails = [v.reason for v in measured.verdicts if v.holds == "fails"]
        if best and fails:
            known |= {"status": BROKEN, "reason": f"measured again, the best model breaks a constraint: {fails[0]}"}
    if last_best and _candidate(last_best).key != first.key:
        known["last_best"] = _last(session, last_best, occasion)
    return known


def _last(session: Session | Targets, last_best: Mapping[str, Any], occasion: str) -> dict[str, Any] | None:
    """The last best model with tonight's figures; None where its artifact is gone or it does not run any more."""
    try:
        measured, how = _measure(session, _candidate(last_best), occasion)
    except AutooptError:
        return None
    return {**last_best, **_model(measured, {}, {}), **how} if measured.outcome.good else None


def _measure(session: Session | Targets, candidate: Candidate, occasion: str) -> tuple[Measured, dict[str, Any]]:
    """All metrics, latencies as the few best of a run are confirmed, so that nights differ by more than the noise; and
    how they were measured."""
    ctx = session.ctx
    confirmed = confirm(ctx, [candidate], occasion=occasion).get(candidate.key, Confirmed())
    again = confirmed.metrics if confirmed.rounds else {}
    others = [m.name for m in ctx.goal.metrics if m.name not in again]
    measured = evaluate(ctx, candidate, compare=ctx.source, only=others, judged=False, occasion=occasion)
    if confirmed.rounds:
        measured = judged_again(ctx.goal, measured, confirmed)
        found, warned = account(measured, confirmed)
    else:
        measured.judge(ctx.goal, measured.metrics)
        found, warned = account_of(ctx, measured.keys)
    return measured, {"measured": found, "flags": [*measured.reasons, *warned]}


def _candidate(best: Mapping[str, Any]) -> Candidate:
    return Candidate(str(best["artifact"]), dict(best.get("session_options") or {}))


def _model(
    measured: Measured, intervals: Mapping[str, Estimate], ratios: Mapping[str, Estimate]
) -> dict[str, dict[str, Any]]:
    metrics = {**intervals, **measured.metrics}
    return {
        "metrics": {n: e.value for n, e in metrics.items()},
        "intervals": {n: asdict(e) for n, e in metrics.items()},
        "ratios": {n: asdict(e) for n, e in {**ratios, **measured.ratios}.items()},
    }


def _figures(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    return {
        "metrics": {n: e.value for n, e in estimates.items()},
        "intervals": {n: [e.low, e.high] for n, e in estimates.items()},
    }


def _estimates(baseline: Mapping[str, Any]) -> dict[str, Estimate]:
    bounds = baseline.get("intervals") or {}
    return {n: Estimate(v, *bounds.get(n, (v, v))) for n, v in (baseline.get("metrics") or {}).items()}
