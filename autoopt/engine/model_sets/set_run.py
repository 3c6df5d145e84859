"""A run over a model set: a part for each model, which is a run of its own, then the choice by the whole set.

The parts follow each other, because latencies on one machine cannot be measured in parallel. They share workers, pass
runs and the store.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.model_sets.choice import SetChoice
from autoopt.engine.model_sets.part import SetPart
from autoopt.engine.run.export import Package, export
from autoopt.engine.run.opening import open_session
from autoopt.engine.run.select import source_model
from autoopt.engine.run.session import Session
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import EvaluationOptions, evaluate
from autoopt.errors import InputError
from autoopt.model.model_set import ModelSet
from autoopt.results import Baseline, ModelResult, PartResult, RunResult, WorkCounts
from autoopt.store import RunRecord
from autoopt.store.leases import finish_run, run_lease

NONE_MEETS = "no set of models meets the constraints"
JOINT_SECONDS = 60.0
"""Time for measuring the whole set, in any case."""


@dataclass
class ModelSetRun:
    """A prepared run over a model set, with the interface of `Session`."""

    request: RunRequest
    ctx: RunContext
    """The whole set as a problem."""
    parts: list[SetPart]
    """In the order in which they run."""
    description: ModelSet
    record: RunRecord
    notes: list[str]
    answer: RunResult | None = None
    """The result of an identical finished run, if there is one."""
    _lease: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> ModelSetRun:
        if self.answer is None:
            self._lease.enter_context(run_lease(self.ctx.store, self.record.id, self.request.observer.on_note))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.__exit__(kind, error, trace)
        self.ctx.resources.close()

    def execute(self, search: Callable[[Session], RunResult]) -> RunResult:
        """Return the answer of an identical finished run, or search each part with `search` and choose the set."""
        if self.answer is not None:
            return self.answer
        observer = self.request.observer
        for note in self.notes:
            observer.on_note(note)
        for part in self.parts:
            observer.on_phase(f"model {part.name}: {100 * part.share:.0f} % of the time of a whole inference")
            with self._session(part) as session:
                part.result = session.execute(search)
        observer.on_phase("measuring the models together")
        attempt = self.ctx.attempt
        ctx = self.ctx.until(max(attempt.deadline, attempt.clock() + JOINT_SECONDS))
        result = self._choose(ctx)
        finish_run(ctx.store, self.record.id, result.to_json())
        return result

    def export(self, result: RunResult, out: Path) -> RunResult:
        """Write the best set as a package to `out`; the returned result has its path."""
        if result.best is None:
            return result
        package = replace(Package.of(self.record, result, result.best), scripts_may_run=True)
        path = export(self.ctx.store, package, out, self.ctx.resources.pool)
        return replace(result, best=replace(result.best, path=str(path)))

    def export_incumbent(self, out: Path) -> None:
        """Export the best model so far of each part whose search has begun to `out/<name>`."""
        for part in self.parts:
            if part.session is not None:
                part.session.export_incumbent(out / part.name)

    def _session(self, part: SetPart) -> Session:
        if part.session is None:
            began = time.monotonic()
            part.session = open_session(part.request, part.inputs, self.ctx.resources, began, parent=self.record)
        return part.session

    def _choose(self, ctx: RunContext) -> RunResult:
        baseline = evaluate(ctx, ctx.problem.source, EvaluationOptions(judged=False))
        if not baseline.outcome.good:
            message = f"the models together cannot be measured: {baseline.outcome} ({baseline.message})"
            raise InputError(message, where=self.record.name)
        ctx.attempt.observer.on_baseline(baseline.metrics)
        choice = SetChoice(ctx, self.description, self.parts, baseline)
        best = choice.choose()
        source = source_model(ctx, baseline)
        trials: Counter[str] = Counter()
        pass_runs, evaluations = WorkCounts(), ctx.attempt.counts.of("evaluations")
        parts = []
        for part in self.parts:
            assert part.result is not None, "all parts were searched"
            trials.update(part.result.trials)
            pass_runs += part.result.pass_runs
            evaluations += part.result.evaluations
            model = choice.chosen.get(part.name, part.result.baseline.model)
            parts.append(PartResult(part.name, part.share, part.result, model))
        return RunResult(
            run=self.record.id,
            status=NONE_MEETS if best is None else "finished",
            baseline=Baseline(source.artifact, source.path, source.metrics, source.intervals),
            best=best,
            pareto=_front(best),
            trials=dict(trials),
            pass_runs=pass_runs,
            evaluations=evaluations,
            seconds={"total": round(ctx.attempt.elapsed(), 3)},
            notes=(*self.notes, *choice.notes),
            undecided=choice.undecided,
            stopped="; ".join(dict.fromkeys(part.result.stopped for part in parts)),
            parts=tuple(parts),
            objectives=ctx.problem.goal.objectives,
            constraints=ctx.problem.goal.constraints,
        )


def _front(best: ModelResult | None) -> tuple[ModelResult, ...]:
    if best is None or best.is_source:
        return ()
    return (best,)
