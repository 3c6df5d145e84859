"""The entry of one model in a sweep: its run, its environment and inputs, and its figures measured again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from autoopt.engine.prepare import Prepared, prepare
from autoopt.engine.run.evidence import judge_again
from autoopt.engine.run.output_folder import check_out
from autoopt.engine.run.race import measure_repeatedly
from autoopt.engine.run.select import stored_summary
from autoopt.engine.run.session import Session, best_candidates
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measurements, evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.errors import AutooptError, InputError
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate, digest_json
from autoopt.problem.environment import environment
from autoopt.problem.run_request import RunRequest
from autoopt.results import ModelResult, RunResult, SweepEntry, values_of
from autoopt.results.sweep import BROKEN, OK
from autoopt.spec import DagSpec
from autoopt.zoo.sweep_comparison import EarlierEntry, compare_entry
from autoopt.zoo.sweep_request import SearchWith, SweepRequest
from autoopt.zoo.zoo_models import BareModel, ZooItem


@dataclass(frozen=True)
class EntryRunner:
    """Runs the models of one sweep."""

    request: SweepRequest
    search: SearchWith
    sweep: str
    """Id of the sweep."""
    occasion: str
    """A resumed sweep does not measure twice on the same occasion."""

    def run(self, item: ZooItem, spec: DagSpec | BareModel, earlier: Sequence[EarlierEntry] = ()) -> SweepEntry:
        """Run one model and compare it. A model that cannot be read or run gives an entry with the reason.

        `earlier` has the model's release and its entries of earlier good sweeps, newest first. A nightly sweep measures
        the best model of the first one again; so does any sweep if the source's bytes have changed.
        """
        began = time.monotonic()
        entry = SweepEntry(
            name=item.name,
            status="refused",
            path=item.shown_path,
            tags=tuple(item.entry.spec.tags),
            listed=item.listed,
            called=item.called,
            found=not item.reason,
            reason=item.reason,
            environment=environment(),
        )
        if not item.reason:
            entry = self._run(item, spec, entry, earlier)
        entry = replace(entry, compared=compare_entry(entry, earlier))
        return replace(entry, seconds=round(time.monotonic() - began, 3))

    def _run(
        self, item: ZooItem, spec: DagSpec | BareModel, entry: SweepEntry, earlier: Sequence[EarlierEntry]
    ) -> SweepEntry:
        candidates: tuple[str, ...] = ()
        if self.request.check:
            last = earlier[0].entry.result if earlier else None
            if last is None:
                return replace(entry, status="not measured", reason="not in the last sweep")
            candidates = best_candidates(last)
        try:
            if self.request.out is not None:
                check_out(self.request.out / entry.name)
            request = self.request.run_request(self.sweep, item, spec, candidates)
        except InputError as error:
            return replace(entry, reason=str(error))
        return self.measured(request, entry, earlier)

    def measured(self, request: RunRequest, entry: SweepEntry, earlier: Sequence[EarlierEntry]) -> SweepEntry:
        """Carry out the run of an entry. A model that cannot be read or run gives an entry with the reason."""
        run = ""
        try:
            with prepare(request) as session:
                run = session.ctx.run
                return self._search(session, request.candidates, entry, earlier)
        except AutooptError as error:
            status = "refused" if isinstance(error, InputError) else "failed"
            return replace(entry, status=status, reason=str(error), failed_run=run)

    def _search(
        self, session: Prepared, candidates: Sequence[str], entry: SweepEntry, earlier: Sequence[EarlierEntry]
    ) -> SweepEntry:
        """Search, measure again what nights compare, and write the package unless the model has regressed."""
        out = None if self.request.out is None else self.request.out / entry.name
        search = _refuse_to_search if self.request.check and not candidates else self.search
        try:
            result = session.execute(search)
        except KeyboardInterrupt:
            # The folder may hold a good model of an earlier sweep, which an unfinished search must not replace.
            if out is not None and not earlier:
                session.export_incumbent(out)
            raise
        entry = _with_result(entry, result, session.ctx)
        if self.request.nightly or _has_other_source(entry, earlier):
            last_best = earlier[0].entry.best if earlier else None
            entry = measure_again(session, entry, last_best, occasion=self.occasion)
        if out is not None:
            self._export(session, result, out, regressed=compare_entry(entry, earlier).regressed)
        return entry

    def _export(self, session: Prepared, result: RunResult, out: Path, *, regressed: bool) -> None:
        """Write the package with the figures of the run, as its report has them, unless the model has regressed."""
        if regressed and not self.request.accept:
            self.request.observer.on_note(f"{out.name}: a regression; {out} stays as it is")
        else:
            session.export(result, out)


def _refuse_to_search(session: Session) -> RunResult:
    """In place of a search of a check: several targets or models are compared only if nothing of theirs has changed.

    Raises:
        InputError: Always.
    """
    raise InputError("its targets or models have changed since the last sweep, and a check searches for nothing")


def _has_other_source(entry: SweepEntry, earlier: Sequence[EarlierEntry]) -> bool:
    """True if the source's bytes differ from those of the reference: only models measured beside each other compare."""
    before = earlier[0].entry.result if earlier else None
    if before is None or entry.result is None:
        return False
    return before.baseline.artifact != entry.result.baseline.artifact


def _with_result(entry: SweepEntry, result: RunResult, ctx: RunContext) -> SweepEntry:
    """The entry of a model that has run; its environment has the versions on the hosts that the run used."""
    hosts = ctx.resources.hosts.runtimes_of(ctx.problem.plan.spec)
    status, reason = OK, ""
    if result.best is None:
        status, reason = result.status, "; ".join(result.notes)
    return replace(
        entry,
        status=status,
        reason=reason,
        result=replace(result, front=()),
        environment={**environment(), "hosts": hosts} if hosts else dict(environment()),
        inputs=_input_digests(ctx),
    )


def _input_digests(ctx: RunContext) -> dict[str, str]:
    """Short digests of a run's inputs, by the name that users know."""
    goal = ctx.problem.goal
    digests = {
        "model": ctx.problem.source.artifact,
        "DAG": ctx.problem.plan.digest,
        "objectives and constraints": digest_json(
            [list(map(asdict, goal.objectives)), list(map(asdict, goal.constraints))]
        ),
        "evaluation data": ctx.problem.data.evaluation.digest,
        "calibration data": ctx.problem.data.calibration.digest,
        "latency data": ctx.problem.data.latency.digest,
        "user script": ctx.problem.script.content,
    }
    return {name: digest.removeprefix("sha256:")[:8] or "none" for name, digest in digests.items()}


def measure_again(session: Prepared, entry: SweepEntry, last_best: ModelResult | None, *, occasion: str) -> SweepEntry:
    """Return the entry with new figures of the source and the best model, and of `last_best` if that is another one.

    The entry's status changes if the best model now certainly breaks a constraint. `last_best` is the best model of the
    last good sweep; `occasion` names this sweep, so that a resumed one does not measure twice.
    """
    result = entry.result
    assert result is not None, "the entry of a model that has run"
    # The budget of minutes is for the search, which may have used it up.
    ctx = session.ctx.until(float("inf"))
    candidate = ctx.problem.source if result.best is None else result.best.candidate
    measured, model = _measure(ctx, candidate, result.best or ModelResult(), occasion)
    if measured.outcome.good:
        figures = measured.metrics if candidate.key == ctx.problem.source.key else measured.source
        result = replace(result, baseline=_with_figures(result.baseline, figures))
        if result.best is not None:
            result = replace(result, best=model)
            entry = _judged(entry, measured)
        entry = replace(entry, result=result)
    if last_best is not None and last_best.candidate.key != candidate.key:
        entry = replace(entry, last_best=_measure_last_best(ctx, last_best, occasion))
    return entry


def _judged(entry: SweepEntry, measured: Measurements) -> SweepEntry:
    """The entry with another status if its best model certainly breaks a constraint."""
    broken = [verdict.reason for verdict in measured.verdicts if verdict.status == "fails"]
    if not broken:
        return entry
    return replace(entry, status=BROKEN, reason=f"the best model, measured again, breaks a constraint: {broken[0]}")


def _with_figures(baseline: ModelResult, figures: Mapping[str, Estimate]) -> ModelResult:
    """The source model with new figures."""
    exact = {name: Estimate.exact(value) for name, value in baseline.metrics.items()}
    intervals = {**exact, **baseline.intervals, **figures}
    return replace(baseline, metrics=values_of(intervals), intervals=intervals).as_source


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
