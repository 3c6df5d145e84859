"""A run over a model set: a part for each model, which is a run of its own, then the choice by the whole set."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from autoopt.engine.parts.run_of_parts import Part, RunOfParts, Search
from autoopt.engine.parts.set_choice import SetChoice, chains_text
from autoopt.engine.parts.set_inputs import with_candidates
from autoopt.engine.run.export import export_best, export_set
from autoopt.engine.run.interim_package import InterimPackage, lossy_note
from autoopt.engine.run.opening import make_attempt, open_session, settings_of
from autoopt.engine.run.output_folder import shown_folder
from autoopt.engine.run.package import Package, SetPackage
from autoopt.engine.run.select import source_model
from autoopt.engine.run.session import Session
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.errors import InputError, SystemFailure
from autoopt.report.words.verdict import gains
from autoopt.results import Baseline, ModelResult, NoteKind, PartResult, RunResult
from autoopt.store import RunRecord
from autoopt.store.finished import result_of
from autoopt.tuning import RACE

NONE_MEETS: Final = "no set of models meets the constraints"


class ModelSetRun(RunOfParts):
    """A prepared run over a model set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.problem.inputs is not None, "a set has inputs"
        self._description = self.problem.inputs.description
        attempt = make_attempt(self.request, self.problem.whole, self.record.id, self.began)
        self._ctx = RunContext(self.problem.whole, self.resources, attempt)
        self._package = InterimPackage(
            self.request.out,
            lambda _ctx, _result, _model, out: self._write_interim(self._parts_so_far(), out),
            "the best models so far, which are not measured together yet",
        )

    @property
    def ctx(self) -> RunContext:
        """The context of the whole set."""
        return self._ctx

    def search(self, search: Search) -> RunResult:
        """Search each part, then choose the set."""
        observer = self.request.observer
        for note in self.notes:
            observer.on_note(str(note))
        for part in self.parts:
            observer.on_phase(f"model {part.name}: {100 * part.share:.0f} % of the time of a whole inference")
            try:
                self.search_part(part, search)
            finally:
                with suppress(SystemFailure):  # the error that ended the search, if any, says more
                    so_far = self._parts_so_far()
                    if so_far:  # for readers of an unfinished run
                        self.ctx.store.runs.update(self.record.id, self._interim_result(so_far).to_json())
            self._package.update(part.open_session.ctx, part.searched, always=True)
        observer.on_phase("measuring the models together")
        attempt = self.ctx.attempt
        return self._choose(self.ctx.until(max(attempt.deadline, attempt.clock() + RACE.joint_seconds)))

    def export(self, result: RunResult, out: Path) -> RunResult:
        """Write the best set as a package to `out`; the returned result has its path."""
        return export_best(self.resources.store, self.record, result, out, self.resources.pool, self.request.observer)

    def export_incumbent(self, out: Path) -> bool:
        """Export the set of the best models so far, if one is better than its source; true if there was one."""
        parts = self._parts_so_far()
        changes = [
            f"{part.name} {', '.join(gains(part.result, part.model))}" for part in parts if not part.model.is_source
        ]
        if changes:
            self._write_interim(parts, out)
            note = (
                f"wrote the best models so far to {shown_folder(out)}/, not measured together yet: {'; '.join(changes)}"
            )
            self.request.observer.on_note(str(note))
        return bool(changes)

    def opened(self, part: Part) -> Session:
        """Open the session of a part, which keeps the whole set in the output folder."""
        session = open_session(part.request, part.problem, self.resources, time.monotonic(), parent=self.record)
        session.interim_package = self._package
        return session

    def _choose(self, ctx: RunContext) -> RunResult:
        baseline = evaluate(ctx, ctx.problem.source, EvaluationOptions(judged=False, screened=True))
        if not baseline.outcome.good:
            message = f"the models together cannot be measured: {baseline.outcome} ({baseline.message})"
            raise InputError(message, where=self.record.name)
        ctx.attempt.observer.on_baseline(baseline.metrics)
        choice = SetChoice(ctx, self._description, self.parts, baseline)
        best = choice.choose()
        source = source_model(ctx, baseline)
        parts = []
        lossy = []  # the best lossy model of a part in a run without data is not judged in the set
        for part in self.parts:
            model = choice.chosen.get(part.name, part.searched.baseline.model)
            parts.append(PartResult(part.name, part.share, part.searched, model))
            if part.searched.best_lossy:
                lossy.append(lossy_note(part.searched, f"{part.name}: best lossy model"))
        return replace(
            self._result(parts),
            status=NONE_MEETS if best is None else "finished",
            baseline=Baseline(source.artifact, source.path, source.metrics, source.intervals),
            best=best,
            front=() if best is None or best.is_source else (best,),
            notes=(*map(str, self.notes), *choice.notes, *lossy),
            undecided=choice.undecided,
        )

    def _parts_so_far(self) -> list[PartResult]:
        """The results of the parts whose search has begun, each with its best model."""
        parts = []
        for part in self.parts:
            with suppress(InputError):  # a part without a trial has no result yet
                if part.session is not None:
                    result = part.result or result_of(part.session.record)
                    parts.append(PartResult(part.name, part.share, result, result.best or result.baseline.model))
        return parts

    def _interim_result(self, parts: list[PartResult]) -> RunResult:
        return replace(self._result(parts), status="running")

    def _write_interim(self, parts: list[PartResult], out: Path) -> None:
        """Write the set of the best models so far, and the sources of the others. They were not measured together."""
        store, results = self.resources.store, {part.name: part for part in parts}
        packages, models = {}, {}
        for part in self.parts:
            if part.name in results:
                record = store.runs.get(results[part.name].result.run)
            else:
                problem, settings = part.problem, settings_of(part.request, part.problem)
                results[part.name] = _not_searched(self.record, part)
                record = RunRecord(self.record.id, part.name, problem.identity, problem.source.artifact, {}, settings)
            so_far = results[part.name]
            models[part.name] = so_far.model
            packages[part.name] = replace(Package(record, so_far.result, so_far.model), scripts_may_run=True)
        candidates = {name: model.candidate for name, model in models.items()}
        chosen = ModelResult(chain=chains_text(models))
        all_parts = tuple(results[part.name] for part in self.parts)
        whole = replace(self._interim_result(parts), best=chosen, parts=all_parts)
        package = replace(Package(self.record, whole, chosen), scripts_may_run=True)
        description = with_candidates(self._description, candidates, store)
        export_set(store, SetPackage(package, description, packages), out, self.resources.pool)

    def _result(self, parts: list[PartResult]) -> RunResult:
        """The result of the searches of these parts, without the whole set."""
        attempt, goal = self.ctx.attempt, self.problem.whole.goal
        result = self.joined([part.result for part in parts])
        return replace(
            result,
            evaluations=result.evaluations + attempt.counts.of("evaluations"),
            seconds={"total": round(attempt.elapsed(), 3)},
            notes=tuple(map(str, self.notes)),
            lacks_data=any(note.kind is NoteKind.NO_DATA for note in self.notes),
            parts=tuple(parts),
            objectives=goal.objectives,
            constraints=goal.constraints,
        )


def _not_searched(run: RunRecord, part: Part) -> PartResult:
    """The result of a part whose search has not begun: its source model."""
    result = RunResult(run.id, "running")
    result = replace(result, baseline=replace(result.baseline, artifact=part.problem.source.artifact))
    model = replace(result.baseline.model, session_options=part.problem.source.session_options)
    return PartResult(part.name, part.share, result, model)
