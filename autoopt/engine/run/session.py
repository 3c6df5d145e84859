"""A run from beginning to end: baseline, search, confirmation of the best, result. Usable without Prefect."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any

from autoopt.dag import Chain
from autoopt.engine.run.confirm import Confirmed, confirm, judged_again, seconds_for
from autoopt.engine.run.executor import Executor, InlineExecutor
from autoopt.engine.run.export import export
from autoopt.engine.run.loop import CompletedTrial, Search
from autoopt.engine.run.ranking import Ranking
from autoopt.engine.run.select import distinct_feasible, explain_no_result, source_model
from autoopt.engine.run.trial import with_measured
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measured, evaluate
from autoopt.engine.work.pass_runs import run_chain
from autoopt.errors import InputError
from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.results import Baseline, ModelResult, RunResult, TrialResult, WorkCounts
from autoopt.search.study import Study
from autoopt.spec.search import SearchConfig
from autoopt.store.leases import abandon_run, renewed_claim

CONFIRM = 3
"""How many of the best candidates are measured again before one is chosen."""
TURNS = 3
"""How often the next so many are, where all before them then break a constraint."""
FATAL = (Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY)


@dataclass
class Session:
    """A prepared run. `answer` is set where an identical finished run answers; then there is nothing to search."""

    ctx: RunContext
    strategy: Study
    search_config: SearchConfig
    chains: dict[str, Chain]
    notes: list[str]
    name: str
    answer: RunResult | None = None
    closing: ExitStack = field(default_factory=ExitStack)
    """What ends with the session."""
    _baseline: Measured | None = field(default=None, init=False)
    _lease: ExitStack = field(default_factory=ExitStack, init=False)
    _confirmed: set[str] = field(default_factory=set, init=False)

    def __enter__(self) -> Session:
        if self.answer is None:
            self._lease.enter_context(renewed_claim(self.ctx.store, "run", self.ctx.run))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.close()
        if error is not None and self.answer is None:
            self.closing.callback(self._say, abandon_run(self.ctx.store, self.ctx.run, error))
        self.closing.close()

    def _say(self, text: str) -> None:
        if text:
            self.ctx.observer.on_note(text)

    def baseline(self) -> Measured:
        """Metrics of the source model, measured or from the store.

        Raises:
            InputError: the source model crashes, hangs, overflows the memory, or does not fit data and metrics.
        """
        if self._baseline is None:
            with self.ctx.counts.timing("baseline"):
                measured = evaluate(self.ctx, self.ctx.source, compare=self.ctx.source, judged=False)
            if measured.outcome in FATAL:
                raise InputError(
                    f"the source model cannot be measured: {measured.outcome} ({measured.message})", where=self.name
                )
            if measured.outcome is Outcome.REFUSED:
                raise InputError(measured.message, where=self.name)
            if not measured.outcome.good:
                self.notes.append(f"the source model does not run ({measured.message}): no ratios")
            self._baseline = measured
            self.ctx.observer.on_baseline(measured.metrics)
        return self._baseline

    def work_ahead(self, enough: Callable[[], bool]) -> None:
        """Do what the search will need in any case and what needs no quiet machine, until `enough()` or done: the
        source's quality, and the first passes of the chains up to the first searched parameter."""
        quiet = [m.name for m in self.ctx.goal.metrics if m.kind not in ("latency", "memory")]
        with self.ctx.counts.timing("baseline"):
            evaluate(self.ctx, self.ctx.source, compare=self.ctx.source, only=quiet, judged=False)
        for chain in self.chains.values():
            if enough():
                return
            fixed = list(takewhile(lambda node: not node.space.search, chain.nodes))
            run_chain(self.ctx, fixed, {n.id: n.space.config({}) for n in fixed})

    def steps_of(self, model: ModelResult) -> list[dict[str, Any]]:
        """The lineage of a model, from the source on; none for the source itself."""
        if model.candidate.key == self.ctx.source.key:
            return []
        return [step.to_json() for step in self.ctx.store.lineage.trace(model.candidate).steps]

    def carry_out(self, search: Callable[[Session], RunResult]) -> RunResult:
        """The result: the answer of an identical finished run, or what `search` finds."""
        return self.answer or search(self)

    def export(self, result: RunResult, out: Path) -> RunResult:
        """Leave the best model with its recipe in the folder `out`; the result says where."""
        return result if result.best is None else replace(result, best=self.export_choice(result.best, out))

    def export_choice(self, model: ModelResult, out: Path) -> ModelResult:
        """Leave a model that this run's passes made, with its recipe, in the folder `out`; the result says where."""
        ctx = self.ctx
        steps, replay_environment = self.steps_of(model), ctx.replay_environment_json()
        path = export(
            ctx.store, model, out, source=ctx.source.artifact, steps=steps, replay_environment=replay_environment
        )
        return replace(model, path=str(path))

    def told(self) -> list[CompletedTrial]:
        """The trials of this run that are done, from the store."""
        rows = [row for row in self.ctx.store.trials.all(self.ctx.run) if row.status == "done"]
        return [
            CompletedTrial(r.number, self.chains[r.chain], r.result, r.details.get("upto") is not None) for r in rows
        ]

    def search(self, executor: Executor) -> RunResult:
        """Carry the run to its result, which is recorded before it is returned."""
        baseline = self.baseline()
        goal, trials = self.ctx.goal, self.search_config.trials or self.ctx.plan.point_count
        self.ctx.observer.on_search_start(goal.objectives, goal.constraints, trials)
        search = Search(self.ctx, self.strategy, self.chains, baseline.metrics, self._search_until())
        with self.ctx.counts.timing("search"):
            told = search.run(executor)
        return self.conclude(told, search.stopped)

    @property
    def ranking(self) -> Ranking:
        """How this run's trials compare."""
        return Ranking(self.ctx, self.baseline(), self.search_config.choose)

    def conclude(self, told: list[CompletedTrial], stopped: str) -> RunResult:
        """The result of these trials, the few best of them measured again; recorded."""
        baseline = self.baseline()
        with self.ctx.counts.timing("confirm"):
            self._confirm(told, baseline)
        if not told:
            self.notes.append(f"no trial was made: {stopped}")
        if baseline.metrics.get("accuracy", Estimate.exact(1.0)).value == 0:
            self.notes.append("the source model's accuracy is 0: are these its labels?")
        result = self._result(told, baseline, stopped)
        self.ctx.store.runs.finish(self.ctx.run, "finished", result.to_json())
        return result

    def _search_until(self) -> float:
        """When the search has to end so that there is time to confirm the best: that time, at most a fifth of all."""
        whole = self.ctx.deadline - self.ctx.began
        return self.ctx.deadline - min(0.2 * whole, seconds_for(self.ctx, CONFIRM))

    def _confirm(self, told: list[CompletedTrial], baseline: Measured) -> None:
        """Measure the latency of the few best again, and judge their constraints by that; where all of them break one,
        that of the next few."""
        broken: list[Measured] = []
        for _ in range(TURNS if baseline.metrics else 0):
            few = {t.result.candidate.key: t.result for t in self.ranking.few_best(told, CONFIRM) if t.result.candidate}
            candidates = [result.candidate for result in few.values() if result.candidate]
            found = confirm(self.ctx, candidates, more=lambda: time.monotonic() < self.ctx.deadline)
            anew = {key: self._anew(few[key], again) for key, again in found.items()}
            self._confirmed |= set(found)
            for trial in told:
                candidate = trial.result.candidate
                if candidate and candidate.key in anew and trial.result.outcome is Outcome.OK:
                    trial.result = with_measured(trial.result, anew[candidate.key])
            broken += [measured for measured in anew.values() if measured.violation > 0]
            if not anew or len(broken) < len(self._confirmed):
                break
        if broken:
            self.notes.append(self._note(broken, told))

    def _anew(self, result: TrialResult, again: Confirmed) -> Measured:
        """What a candidate's evaluations say, with the latencies of its rounds in place of the first one's."""
        known = self.ctx.store.results.evaluations(result.evaluations)
        return judged_again(self.ctx.goal, Measured.of(known[k] for k in result.evaluations if k in known), again)

    def _note(self, broken: Sequence[Measured], told: Sequence[CompletedTrial]) -> str:
        """On the candidates that met the constraints until they were measured again."""
        few = len(self._confirmed)
        said = f"{len(broken)} of the {few} best broke a constraint when measured again: {broken[0].worst}"
        left = len(distinct_feasible(told, self.ctx.source)) if len(broken) == few else 0
        return f"{said}; {left} more, measured only once, do not count" if left else said

    def measured_here(self, trial: CompletedTrial) -> CompletedTrial:
        """A trial, maybe of another target, with what its candidate comes to on this one, measured as the few best."""
        candidate = trial.result.candidate or self.ctx.source
        found = evaluate(self.ctx, candidate, compare=self.ctx.source)
        if found.outcome.good and found.violation <= 0 and self.baseline().metrics:
            for again in confirm(self.ctx, [candidate]).values():
                found = judged_again(self.ctx.goal, found, again)
        return replace(trial, result=with_measured(trial.result, found))

    def _result(self, told: Sequence[CompletedTrial], baseline: Measured, stopped: str) -> RunResult:
        ranking = self.ranking
        best = ranking.best(told, self._confirmed)
        outcomes = Counter(str(t.result.outcome) for t in told)
        outcomes["infeasible"] = sum(t.result.outcome is Outcome.OK and not t.result.feasible for t in told)
        seconds = {"total": round(time.monotonic() - self.ctx.began, 3), **self.ctx.counts.seconds()}
        source = source_model(self.ctx, baseline)
        return RunResult(
            run=self.ctx.run,
            status="finished" if best else "nothing meets the constraints",
            baseline=Baseline(source.artifact, source.path, source.metrics, source.intervals),
            best=best,
            pareto=tuple(ranking.front(told)),
            trials={"total": len(told), "ok": 0, **outcomes},
            pass_runs=WorkCounts(**self.ctx.counts.of("pass_runs")),
            evaluations=WorkCounts(**self.ctx.counts.of("evaluations")),
            seconds=seconds,
            notes=tuple(self.notes if best else [*explain_no_result(told), *self.notes]),
            stopped=stopped,
            objectives=self.ctx.goal.objectives,
            constraints=self.ctx.goal.constraints,
        )


def inline(session: Session) -> RunResult:
    """The search of a session with its trials in threads of this process."""
    with InlineExecutor(session.ctx.workers, session.ctx.stop) as executor:
        return session.search(executor)
