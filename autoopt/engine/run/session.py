"""A run from beginning to end: baseline, search, race of the best, result. Works without Prefect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType

from autoopt.engine.run.early_warnings import script_bug, source_failure, without_labels
from autoopt.engine.run.executor import Executor, InlineExecutor
from autoopt.engine.run.export import InterimPackage, export_best
from autoopt.engine.run.loop import Confirmation, MeasuredSource, SearchLoop
from autoopt.engine.run.package import narrowing_by
from autoopt.engine.run.race import Decision, measure_exactly, search_deadline
from autoopt.engine.run.ranking import Ranking
from autoopt.engine.run.select import (
    distinct_feasible,
    explain_nearest,
    explain_no_result,
    explain_repeats,
    explain_untried,
    explain_waiting,
    source_model,
    waiting_text,
)
from autoopt.engine.run.trial import with_measurements
from autoopt.engine.work.calls import WAITING
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measurements, evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.errors import InputError, SystemFailure
from autoopt.metrics import Estimate
from autoopt.observer import Observer
from autoopt.option_names import option
from autoopt.outcome import Outcome
from autoopt.report.words.formatting import plural
from autoopt.results import ModelResult, Note, NoteKind, RunResult, Trial
from autoopt.results.run import SearchEnd
from autoopt.search.study import Study
from autoopt.store import RunRecord
from autoopt.store.finished import finished_trials
from autoopt.store.leases import finish_run, run_lease
from autoopt.tuning import RACE

FATAL = (Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY)
"""Outcomes of the source model that end the run."""
SOURCE_ONLY = "source"
"""In place of a trial of another run: no other candidate than the source model."""

RECORD_SECONDS, RECORD_SHARE = 1.0, 0.02
"""Shortest time between two records of the interim result, and largest share of the time that they take."""


@dataclass
class Session:
    """A prepared run on one target. Use it as a context manager, which holds the run's lease.

    If `answer` is set, an identical finished run has answered, and there is nothing to search.
    """

    ctx: RunContext
    study: Study
    notes: list[Note]
    name: str
    answer: RunResult | None = None
    remeasure: bool = False
    """Candidates to measure once more before deciding."""
    continues: str | None = None
    """Id of an identical finished run whose trials this one takes over instead of searching."""
    candidates: tuple[str, ...] = ()
    """`RUN:TRIAL` of the trials of other runs that are measured instead of searching."""
    interim_package: InterimPackage = field(default_factory=InterimPackage)
    """The best model so far in the output folder."""
    closing: ExitStack = field(default_factory=ExitStack)
    """Contexts that end with the session; the run's lease is the first."""
    _baseline: Measurements | None = field(default=None, init=False)
    _is_source_untimely: bool = field(default=False, init=False)
    """True if the time was up before the source model was measured: it is then the answer, undecided."""
    _decision: Decision | None = field(default=None, init=False)
    _next_record: float = field(default=0.0, init=False)
    """Time on the attempt's clock from which the interim result is recorded again."""

    def __enter__(self) -> Session:
        if self.answer is None:
            self.closing.enter_context(run_lease(self.ctx.store, self.ctx.run, self._show_note))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.__exit__(kind, error, trace)

    def _show_note(self, note: str) -> None:
        self.ctx.attempt.observer.on_note(note)

    def observe_with(self, observer: Observer) -> None:
        """Replace the observer of what follows."""
        self.ctx = replace(self.ctx, attempt=replace(self.ctx.attempt, observer=observer))

    def retry_failures(self, before: float) -> None:
        """Execute failures that were stored before this time again, without a time limit.

        The time is on the database's clock.
        """
        attempt = self.ctx.attempt
        retry = replace(attempt.retry, before=before)
        self.ctx = replace(self.ctx, attempt=replace(attempt, retry=retry, deadline=float("inf")))

    def execute(self, search: Callable[[Session], RunResult]) -> RunResult:
        """Return the answer of an identical finished run, or search."""
        return self.answer or search(self)

    def baseline(self) -> Measurements:
        """Measure the source model, at the first call.

        Raises:
            InputError: The source model crashes, hangs, exceeds the memory limit, or does not fit data and metrics.
        """
        if self._baseline is None:
            with self.ctx.attempt.counts.timing("baseline"):
                options = EvaluationOptions(judged=False, screened=True)
                measurements = evaluate(self.ctx, self.ctx.problem.source, options)
            self._is_source_untimely = measurements.outcome is Outcome.TIMEOUT and self.ctx.attempt.remaining() <= 0
            if not measurements.outcome.good and not self._is_source_untimely:
                self._refuse_unmeasured(measurements)
                failure = source_failure(self.ctx.problem, measurements.message)
                self.notes.append(Note(f"no ratios: {failure}"))
                self._show_note(failure)
            self._refuse_ruined(measurements.metrics)
            self._baseline = measurements
            self.ctx.attempt.observer.on_baseline(measurements.metrics)
        return self._baseline

    def _refuse_unmeasured(self, measurements: Measurements) -> None:
        """Refuse a source whose failure no pass can repair."""
        if measurements.outcome in FATAL:
            message = f"the source model cannot be measured: {measurements.outcome} ({measurements.message})"
            remedy = ""
            if measurements.outcome is Outcome.TIMEOUT:
                remedy = "give fewer items of data, or a larger limits: {measure_seconds: ...} in a dag.yaml"
            raise InputError(message, where=self.name, remedy=remedy)
        if measurements.outcome is Outcome.REFUSED:
            script = f"{self.ctx.problem.script.path}:"
            if script in measurements.message:
                line, _, reason = measurements.message.partition(script)[2].partition(": ")
                raise InputError(reason, where=f"{script}{line}")
            raise InputError(measurements.message, where=self.name)

    def _refuse_ruined(self, metrics: Mapping[str, Estimate]) -> None:
        """Refuse a source that gets nothing right: no candidate could be worse."""
        goal = self.ctx.problem.goal
        for name in goal.kept_task_metrics:
            metric = goal.metric(name)
            is_share = metric.unit == "fraction" and metric.direction == "maximize"
            if is_share and name in metrics and metrics[name].value <= 0:
                what = f"the source model's {name} is 0; check that the labels belong to this data"
                raise InputError(what, where=self.ctx.problem.data.evaluation.place, remedy=without_labels())

    def search(self, executor: Executor) -> RunResult:
        """Search, measure the best candidates until one is certain, and record the result.

        The search ends early enough for the decision. What that leaves of the time goes back to the search, and the
        enlarged field is decided again, until there is neither time nor anything to try.

        The trials of the run that this one continues are taken over instead of being searched again.
        """
        if self.continues is not None:
            store = self.ctx.store
            for trial in store.trials.all(self.continues):
                store.trials.finish(replace(trial, run=self.ctx.run, executed=0))
            self.ctx.attempt.observer.on_note(
                f"run {self.continues} has done the search: only its best candidates are measured on"
            )
            end = RunResult.from_json(store.runs.get(self.continues).result).end
            return self.conclude(self.completed_trials(), end)
        if self.candidates:
            return self.choose_among(self._candidate_trials())
        problem, observer = self.ctx.problem, self.ctx.attempt.observer
        trials_planned = min(self.ctx.problem.search.trials or problem.plan.point_count, problem.plan.point_count)
        until = search_deadline(self.ctx)
        seconds = until - self.ctx.attempt.clock()
        observer.on_search_start(problem.goal.objectives, problem.goal.constraints, trials_planned, seconds)
        confirmation = Confirmation()
        if self.ctx.problem.search.stop_early and self.ctx.problem.search.sampler != "exhaustive":
            confirmation = Confirmation(problem.plan.learned, problem.goal.objectives[0])
        loop = SearchLoop(
            self.ctx, self.study, self._measure_source, until, confirmation, after_trial=self._record_often
        )
        trials = self._search_on(loop, executor)
        self._decide(trials)
        while self._decision is not None and loop.extend(self._decision.next_deadline()):
            observer.on_phase("searching again: the decision took less time than was set aside")
            trials = self._search_on(loop, executor)
            self._decide(trials)
        return self._finish(trials, loop.end)

    def _candidate_trials(self) -> Iterator[Trial]:
        """The trials of other runs that are measured instead of searching, as trials of this run."""
        for number, name in enumerate(self.candidates):
            if name != SOURCE_ONLY:
                run, _, original = name.rpartition(":")
                yield replace(self.ctx.store.trials.get(run, int(original)), run=self.ctx.run, number=number)

    def choose_among(self, candidates: Iterable[Trial]) -> RunResult:
        """Measure candidates of other runs on this target until their latencies are known well; choose among them."""
        trials, end = [], SearchEnd()
        for trial in candidates:
            if self.ctx.attempt.remaining() <= 0:
                end = SearchEnd(self.ctx.attempt.limit.text, self.ctx.attempt.limit)
                break
            candidate, options = trial.candidate or self.ctx.problem.source, EvaluationOptions(screened=True)
            measured = with_measurements(trial, measure_exactly(self.ctx, candidate, self.baseline().metrics, options))
            self.ctx.store.trials.finish(measured)
            trials.append(measured)
        return self._finish(trials, end)

    def _search_on(self, loop: SearchLoop, executor: Executor) -> list[Trial]:
        """Search until the loop's end; an error leaves the interim result in the store."""
        with self.ctx.attempt.counts.timing("search"):
            try:
                return loop.run(executor)
            except BaseException:
                if self._baseline is not None:
                    with suppress(SystemFailure):  # the error that ended the search says more
                        self._record_interim(loop.completed)
                raise

    def _measure_source(self) -> MeasuredSource:
        baseline = self.baseline()
        patience = None if baseline.outcome.good else RACE.failed_repairs
        return MeasuredSource(baseline.metrics, self.ranking.source_meets, patience)

    def conclude(self, trials: list[Trial], end: SearchEnd) -> RunResult:
        """Decide which of these trials is the best and record the result.

        Trials of candidates that are measured again get the pooled figures. `end` is that of the search.
        """
        self._decide(trials)
        return self._finish(trials, end)

    def _finish(self, trials: list[Trial], end: SearchEnd) -> RunResult:
        """Record the result of decided trials."""
        baseline = self.baseline()
        repaired = any(trial.outcome is Outcome.OK for trial in trials)
        if not (baseline.outcome.good or self._is_source_untimely or baseline.transient or repaired) and trials:
            failure = source_failure(self.ctx.problem, baseline.message)
            raise InputError(f"{failure}; no pass that was tried repairs it", where=self.name)
        bugs = [script_bug(self.ctx, trial.outcome, trial.message) for trial in trials]
        if not trials:
            self.notes.append(Note(f"no trial ran: {end.text}"))
        elif all(bugs):
            raise InputError(f"your pass fails in every trial: {bugs[0]}", where=self.name)
        result = self._result(trials, end)
        finish_run(self.ctx.store, self.ctx.run, result.to_json())
        return result

    def completed_trials(self) -> list[Trial]:
        """The completed trials of this run, from the store."""
        return finished_trials(self.ctx.store, self.ctx.run)

    @property
    def ranking(self) -> Ranking:
        """The order of this run's trials."""
        return Ranking(self.ctx, self.baseline(), self.ctx.problem.search.choose)

    def export(self, result: RunResult, out: Path) -> RunResult:
        """Export the best model as a package to the folder `out`; the returned result has its path."""
        resources, observer = self.ctx.resources, self.ctx.attempt.observer
        return export_best(self.ctx.store, self.record, result, out, resources.pool, observer)

    def export_incumbent(self, out: Path) -> bool:
        """Export the best model of a search that was cancelled, if it is better than the source, and say so.

        Returns:
            True if there was one.
        """
        with suppress(SystemFailure):  # what ended the search says more
            interim = self.record.result
            if self.answer is None and "baseline" in interim:
                return self.interim_package.finish(self.ctx, RunResult.from_json(interim), out)
        return False

    @property
    def record(self) -> RunRecord:
        """The run as the store has it."""
        return self.ctx.store.runs.get(self.ctx.run)

    def _record_often(self, trials: Sequence[Trial]) -> None:
        """Record the interim result after new work, unless that would take a noticeable share of the time."""
        began = self.ctx.attempt.clock()
        if began >= self._next_record and trials[-1].executed:
            result = self._record_interim(trials)
            ended = self.ctx.attempt.clock()
            self._next_record = ended + max(RECORD_SECONDS, (ended - began) / RECORD_SHARE)
            self.interim_package.update(self.ctx, result)

    def _keep_best(self, trials: Sequence[Trial]) -> None:
        """Record the result of the search and write the best model, as deciding takes a while."""
        self.interim_package.update(self.ctx, self._record_interim(trials), always=True)

    def _record_interim(self, trials: Sequence[Trial]) -> RunResult:
        """Store the result as of these trials, for readers of an unfinished run."""
        result = replace(self._result(trials, SearchEnd()), status="running")
        self.ctx.store.runs.update(self.ctx.run, result.to_json())
        return result

    def _decide(self, trials: list[Trial]) -> None:
        """Measure the best candidates until one is certain; note those that break a constraint by then."""
        if not self.baseline().metrics:
            return
        before = [trial.number for trial in distinct_feasible(trials, self.ctx.problem.source)]
        if self._decision is None:
            keep_best = partial(self._keep_best, trials)
            self._decision = Decision(self.ctx, self._verified_ranking, self.remeasure, keep_best)
        with self.ctx.attempt.counts.timing("confirm"):
            self._decision.run(trials)
        broken = [trial for trial in trials if trial.number in before and not trial.feasible]
        if broken:
            reason = broken[0].explanation
            candidates = plural(len(broken), "candidate")
            self.notes.append(Note(f"{candidates} broke a constraint when measured again: {reason}"))

    @property
    def _verified_ranking(self) -> Ranking:
        """The ranking of what may win: without lossy trials where nothing can tell how good they are."""
        if self.ctx.problem.unverified:
            return replace(self.ranking, lossy=False)
        return self.ranking

    def _narrowing_notes(self, best: ModelResult) -> list[str]:
        """A note on the inputs that the best model takes for granted."""
        if best.candidate.key == self.ctx.problem.source.key:
            return []
        narrowing = narrowing_by(self.ctx.store.lineage.trace(best.candidate).steps)
        if not narrowing:
            return []
        reason = f"the best model works only where {narrowing.text}, as in your data"
        return [f"{reason}; {option('keep_signature', value=True)} avoids this"]

    def _best_lossy(self, trials: Sequence[Trial], ranking: Ranking) -> ModelResult | None:
        """The best unverified lossy model, if there is one that gains on the source."""
        if not self.ctx.problem.unverified:
            return None
        lossy = replace(ranking, lossy=True)
        if self._decision is not None and self._decision.lossy_race is not None:
            lossy = self._decision.lossy_race.ranking
        best = lossy.best(trials)
        if best is None or best.is_source:
            return None
        return best

    def _result(self, trials: Sequence[Trial], end: SearchEnd) -> RunResult:
        """The result as of these trials, also of an unfinished search.

        A race that has begun ranks them with all of its evidence, otherwise their first measurements do. The best is
        chosen before the notes, which explain it: what it takes for granted, or how close others came.
        """
        attempt, goal = self.ctx.attempt, self.ctx.problem.goal
        ranking, undecided = self._verified_ranking, ""
        if self._decision is not None:
            ranking, undecided = self._decision.race.ranking, self._decision.race.undecided
        best = ranking.best(trials)
        source = source_model(self.ctx, self.baseline())
        if self._is_source_untimely:
            waited = waiting_text(attempt.counts.seconds().get(WAITING, 0.0))
            best = source
            undecided = "; ".join(filter(None, ("the time was up before the source model was measured", waited)))
        status, notes = "finished", [*explain_untried(trials), *map(str, self.notes), *explain_repeats(trials)]
        notes += explain_waiting(attempt.counts.seconds().get(WAITING, 0.0), attempt.elapsed())
        if best is None:
            status, notes = "nothing meets the constraints", [*explain_no_result(trials), *notes]
        else:
            notes = [*self._narrowing_notes(best), *notes]
            if best.is_source:
                # A user who can accept a little more loss learns what it would gain.
                notes += explain_nearest(trials)
        return RunResult(
            run=self.ctx.run,
            status=status,
            baseline=source.as_source,
            best=best,
            best_lossy=self._best_lossy(trials, ranking),
            front=tuple(replace(ranking, lossy=None).front(trials)),
            trial_counts=_counts_by_outcome(trials),
            pass_runs=attempt.counts.of("pass_runs"),
            evaluations=attempt.counts.of("evaluations"),
            seconds={"total": round(attempt.elapsed(), 3), **attempt.counts.seconds()},
            notes=tuple(notes),
            warnings=tuple(str(note) for note in self.notes if note.kind is NoteKind.WARNING),
            lacks_data=any(note.kind is NoteKind.NO_DATA for note in self.notes),
            stopped=end.text,
            time_limit=end.limit,
            untried=sum(trial.transient for trial in trials) + self._is_source_untimely,
            undecided=undecided,
            objectives=goal.objectives,
            constraints=goal.constraints,
        )


def _counts_by_outcome(trials: Sequence[Trial]) -> dict[str, int]:
    """The number of trials, of those with each outcome, and of the good ones that break a constraint."""
    outcomes = Counter({"ok": 0})
    for trial in trials:
        outcomes[str(trial.outcome)] += 1
    broken = [trial for trial in trials if trial.outcome is Outcome.OK and not trial.feasible]
    return {"total": len(trials), **outcomes, "infeasible": len(broken)}


def search_inline(session: Session) -> RunResult:
    """Search with trials in threads of this process."""
    with InlineExecutor(session.ctx.attempt.workers, session.ctx.resources.stop) as executor:
        return session.search(executor)


def best_candidates(result: RunResult) -> tuple[str, ...]:
    """The candidates that a check measures in place of a search; empty for several targets or models."""
    if result.targets or result.parts:
        return ()
    if result.best is None or result.best.trial is None:
        return (SOURCE_ONLY,)
    return (f"{result.run}:{result.best.trial}",)
