"""A run from beginning to end: baseline, search, confirmation of the best, result. Works without Prefect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from types import TracebackType

from autoopt.dag.compiler.chain import Chain
from autoopt.engine.run.confirm import Confirmation, confirm, confirmation_seconds, judge_again
from autoopt.engine.run.executor import Executor, InlineExecutor
from autoopt.engine.run.export import export
from autoopt.engine.run.loop import SearchLoop
from autoopt.engine.run.ranking import Ranking
from autoopt.engine.run.select import distinct_feasible, explain_no_result, source_model
from autoopt.engine.run.trial import CompletedTrial, with_measurements
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import EvaluationOptions, Measurements, evaluate
from autoopt.engine.work.pass_runs import run_chain
from autoopt.errors import InputError
from autoopt.json_codec import JsonObject
from autoopt.metrics import Estimate
from autoopt.observer import Observer
from autoopt.outcome import Outcome
from autoopt.results import Baseline, ModelResult, RunResult, TrialResult
from autoopt.search.study import Study
from autoopt.spec.search import SearchConfig
from autoopt.store.leases import abandon_run, renewed_claim

CONFIRMED = 3
"""Number of the best candidates whose latency is measured again before one is chosen."""
TURNS = 3
"""How often the next few are measured again, if all before them then break a constraint."""
FATAL = (Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY)
"""Outcomes of the source model that end the run."""
CONFIRM_SHARE = 0.2
"""Largest share of the run's time that is set aside for confirming the best candidates."""


@dataclass
class Session:
    """A prepared run on one target. Use it as a context manager, which holds the run's lease.

    If `answer` is set, an identical finished run has answered, and there is nothing to search.
    """

    ctx: RunContext
    study: Study
    search_config: SearchConfig
    chains: Mapping[str, Chain]
    notes: list[str]
    name: str
    answer: RunResult | None = None
    closing: ExitStack = field(default_factory=ExitStack)
    """Callbacks for the end of the session."""
    _baseline: Measurements | None = field(default=None, init=False)
    _lease: ExitStack = field(default_factory=ExitStack, init=False)
    _confirmed: set[str] = field(default_factory=set, init=False)
    """Keys of the confirmed candidates."""

    def __enter__(self) -> Session:
        if self.answer is None:
            self._lease.enter_context(renewed_claim(self.ctx.store, "run", self.ctx.run))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.close()
        if error is not None and self.answer is None:
            note = abandon_run(self.ctx.store, self.ctx.run, error)
            if note:
                self.closing.callback(self.ctx.attempt.observer.on_note, note)
        self.closing.close()

    def observe_with(self, observer: Observer) -> None:
        """Replace the observer of what follows."""
        self.ctx = replace(self.ctx, attempt=replace(self.ctx.attempt, observer=observer))

    def retry_failures(self, before: float) -> None:
        """Execute failures that were stored before this time again, without a time limit.

        Args:
            before: Time on the database's clock.
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
                measurements = evaluate(self.ctx, self.ctx.problem.source, EvaluationOptions(judged=False))
            if measurements.outcome in FATAL:
                message = f"the source model cannot be measured: {measurements.outcome} ({measurements.message})"
                raise InputError(message, where=self.name)
            if measurements.outcome is Outcome.REFUSED:
                raise InputError(measurements.message, where=self.name)
            if not measurements.outcome.good:
                self.notes.append(
                    f"the source model cannot be measured, so there are no ratios: {measurements.message}"
                )
            self._baseline = measurements
            self.ctx.attempt.observer.on_baseline(measurements.metrics)
        return self._baseline

    def work_ahead(self, enough: Callable[[], bool]) -> None:
        """Do work that any search needs and that needs no undisturbed machine, until `enough()`.

        That is the source's quality, and the passes of each chain up to the first one with searched parameters.
        """
        quality = [m.name for m in self.ctx.problem.goal.metrics if m.kind not in ("latency", "memory")]
        with self.ctx.attempt.counts.timing("baseline"):
            evaluate(self.ctx, self.ctx.problem.source, EvaluationOptions(metrics=tuple(quality), judged=False))
        for chain in self.chains.values():
            if enough():
                return
            fixed = list(takewhile(lambda node: not node.space.search, chain.nodes))
            run_chain(self.ctx, fixed, {node.id: node.space.config({}) for node in fixed})

    def search(self, executor: Executor) -> RunResult:
        """Search, confirm the best candidates and record the result."""
        problem, observer = self.ctx.problem, self.ctx.attempt.observer
        trials_planned = self.search_config.trials or problem.plan.point_count
        observer.on_search_start(problem.goal.objectives, problem.goal.constraints, trials_planned)
        baseline = self.baseline()
        loop = SearchLoop(self.ctx, self.study, self.chains, baseline.metrics, self._search_deadline())
        with self.ctx.attempt.counts.timing("search"):
            trials = loop.run(executor)
        return self.conclude(trials, loop.stopped)

    def conclude(self, trials: list[CompletedTrial], stopped: str) -> RunResult:
        """Confirm the best of these trials and record the result.

        Args:
            trials: The completed trials. Those of confirmed candidates get the confirmed figures.
            stopped: Why the search ended.
        """
        baseline = self.baseline()
        with self.ctx.attempt.counts.timing("confirm"):
            self._confirm_best(trials)
        if not trials:
            self.notes.append(f"no trial ran: {stopped}")
        if baseline.metrics.get("accuracy", Estimate.exact(1.0)).value == 0:
            self.notes.append("the source model's accuracy is 0; check that the labels belong to this data")
        result = self._result(trials, stopped)
        self.ctx.store.runs.finish(self.ctx.run, "finished", result.to_json())
        return result

    def completed_trials(self) -> list[CompletedTrial]:
        """The completed trials of this run, from the store."""
        trials: list[CompletedTrial] = []
        for record in self.ctx.store.trials.all(self.ctx.run):
            if record.status == "done":
                partial = record.details.get("upto") is not None
                trial = CompletedTrial(record.number, self.chains[record.chain], record.result, partial)
                trials.append(trial)
        return trials

    @property
    def ranking(self) -> Ranking:
        """The order of this run's trials."""
        return Ranking(self.ctx, self.baseline(), self.search_config.choose)

    def measure_trial(self, trial: CompletedTrial, until: float) -> CompletedTrial:
        """Measure the candidate of a trial, possibly another target's, on this target, and confirm it.

        Args:
            trial: The trial whose candidate to measure.
            until: Deadline, if it is later than the run's own.
        """
        ctx = self.ctx.until(max(self.ctx.attempt.deadline, until))
        candidate = trial.result.candidate or ctx.problem.source
        measurements = evaluate(ctx, candidate)
        if measurements.outcome.good and measurements.violation <= 0 and self.baseline().metrics:
            for confirmation in confirm(ctx, [candidate]).values():
                measurements = judge_again(ctx.problem.goal, measurements, confirmation)
        return replace(trial, result=with_measurements(trial.result, measurements))

    def export(self, result: RunResult, out: Path) -> RunResult:
        """Export the best model with its recipe to the folder `out`; the returned result has its path."""
        if result.best is None:
            return result
        return replace(result, best=self.export_model(result.best, out))

    def export_model(self, model: ModelResult, out: Path) -> ModelResult:
        """Export a model that this run's passes made, with its recipe; the returned model has its path."""
        problem = self.ctx.problem
        path = export(
            self.ctx.store,
            model,
            out,
            source=problem.source.artifact,
            steps=self.steps_of(model),
            replay_environment=problem.replay_environment(),
        )
        return replace(model, path=str(path))

    def steps_of(self, model: ModelResult) -> list[JsonObject]:
        """The lineage of a model from the source on; empty for the source itself."""
        if model.candidate.key == self.ctx.problem.source.key:
            return []
        return [step.to_json() for step in self.ctx.store.lineage.trace(model.candidate).steps]

    def _search_deadline(self) -> float:
        """End of the search, which leaves time to confirm the best candidates."""
        attempt = self.ctx.attempt
        reserve = CONFIRM_SHARE * (attempt.deadline - attempt.began)
        return attempt.deadline - min(reserve, confirmation_seconds(self.ctx.problem, CONFIRMED))

    def _confirm_best(self, trials: Sequence[CompletedTrial]) -> None:
        """Confirm the few best candidates; if all of them then break a constraint, the next few."""
        broken: list[Measurements] = []
        if not self.baseline().metrics:
            return
        for _ in range(TURNS):
            results = self._best_results(trials)
            candidates = [result.candidate for result in results.values() if result.candidate is not None]
            judged: dict[str, Measurements] = {}
            for key, confirmation in confirm(self.ctx, candidates).items():
                judged[key] = self._judge_again(results[key], confirmation)
                if judged[key].violation > 0:
                    broken.append(judged[key])
            self._confirmed |= set(judged)
            _update(trials, judged)
            if not judged or len(broken) < len(self._confirmed):
                break
        if broken:
            self.notes.append(self._broken_note(broken, trials))

    def _best_results(self, trials: Sequence[CompletedTrial]) -> dict[str, TrialResult]:
        """The results of the few best trials, by key of the candidate."""
        results: dict[str, TrialResult] = {}
        for trial in self.ranking.few_best(trials, CONFIRMED):
            if trial.result.candidate is not None:
                results[trial.result.candidate.key] = trial.result
        return results

    def _judge_again(self, result: TrialResult, confirmation: Confirmation) -> Measurements:
        records = self.ctx.store.results.evaluations(result.evaluations)
        first = Measurements.of(records[key] for key in result.evaluations if key in records)
        return judge_again(self.ctx.problem.goal, first, confirmation)

    def _broken_note(self, broken: Sequence[Measurements], trials: Sequence[CompletedTrial]) -> str:
        """A note on candidates that met the constraints only until they were confirmed."""
        count = len(self._confirmed)
        note = f"{len(broken)} of the {count} best broke a constraint when measured again: {broken[0].worst}"
        if len(broken) < count:
            return note
        unconfirmed = len(distinct_feasible(trials, self.ctx.problem.source))
        if not unconfirmed:
            return note
        return f"{note}; {unconfirmed} more do not count because they were measured only once"

    def _result(self, trials: Sequence[CompletedTrial], stopped: str) -> RunResult:
        attempt, goal = self.ctx.attempt, self.ctx.problem.goal
        best = self.ranking.best(trials, self._confirmed)
        outcomes = Counter({"ok": 0})
        outcomes.update(str(trial.result.outcome) for trial in trials)
        outcomes["infeasible"] = sum(t.result.outcome is Outcome.OK and not t.result.feasible for t in trials)
        source = source_model(self.ctx, self.baseline())
        status, notes = "finished", self.notes
        if best is None:
            status, notes = "nothing meets the constraints", [*explain_no_result(trials), *self.notes]
        return RunResult(
            run=self.ctx.run,
            status=status,
            baseline=Baseline(source.artifact, source.path, source.metrics, source.intervals),
            best=best,
            pareto=tuple(self.ranking.front(trials)),
            trials={"total": len(trials), **outcomes},
            pass_runs=attempt.counts.of("pass_runs"),
            evaluations=attempt.counts.of("evaluations"),
            seconds={"total": round(attempt.elapsed(), 3), **attempt.counts.seconds()},
            notes=tuple(notes),
            stopped=stopped,
            objectives=goal.objectives,
            constraints=goal.constraints,
        )


def _update(trials: Sequence[CompletedTrial], judged: Mapping[str, Measurements]) -> None:
    """Give the trials of confirmed candidates the confirmed figures."""
    for trial in trials:
        candidate = trial.result.candidate
        if candidate is not None and candidate.key in judged and trial.result.outcome is Outcome.OK:
            trial.result = with_measurements(trial.result, judged[candidate.key])


def search_inline(session: Session) -> RunResult:
    """Search with trials in threads of this process."""
    with InlineExecutor(session.ctx.attempt.workers, session.ctx.resources.stop) as executor:
        return session.search(executor)
