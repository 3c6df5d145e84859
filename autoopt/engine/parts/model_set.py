"""A run over a model set: a part for each model, which is a run of its own, then the choice by the whole set.

The heaviest part chooses first: the best of its models with which the set, as chosen so far, meets its limits on
quality. Then the whole set is measured beside the source set.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from autoopt.engine.parts.run_of_parts import Part, RunOfParts, Search
from autoopt.engine.parts.set_inputs import store_set, with_candidates
from autoopt.engine.run.export import InterimPackage, export_best, export_set, lossy_note
from autoopt.engine.run.opening import make_attempt, open_session, settings_of
from autoopt.engine.run.output_folder import shown_folder
from autoopt.engine.run.package import Package, SetPackage
from autoopt.engine.run.race import measure_exactly
from autoopt.engine.run.select import UNVERIFIED, source_model, stored_summary
from autoopt.engine.run.session import Session
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measurements, evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.errors import InputError, SystemFailure
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.model.model_set import ModelSet
from autoopt.outcome import Outcome
from autoopt.report.words.verdict import gains
from autoopt.results import ModelResult, NoteKind, PartResult, RunResult, source_result, values_of
from autoopt.results.figures import QUALITY_KINDS
from autoopt.store import RunRecord
from autoopt.store.finished import result_of
from autoopt.tuning import RACE

NONE_MEETS: Final = "no set of models meets the constraints"
TIME_UP: Final = "the time was up before the models were measured together"


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
            lambda _ctx, _result, out: self._write_interim(self._parts_so_far(), out),
            "the best models so far, which are not measured together yet",
        )

    @property
    def ctx(self) -> RunContext:
        """The context of the whole set."""
        return self._ctx

    def search_part(self, part: Part, search: Search) -> None:
        """Search one model, and keep the set of the best models so far in the store and in the output folder."""
        share = f"{100 * part.share:.0f} % of the time of a whole inference"
        self.request.observer.on_phase(f"model {part.name}: {share}")
        try:
            super().search_part(part, search)
        finally:
            with suppress(SystemFailure):  # the error that ended the search, if any, says more
                so_far = self._parts_so_far()
                if so_far:  # for readers of an unfinished run
                    interim = replace(self._result(so_far), status="running")
                    self.ctx.store.runs.update(self.record.id, interim.to_json())
        self._package.update(part.open_session.ctx, part.searched, always=True)

    def choose(self) -> RunResult:
        """Choose a model for each part, by what the whole set does with them."""
        attempt = self.ctx.attempt
        attempt.observer.on_phase("measuring the models together")
        ctx = self.ctx.until(max(attempt.deadline, attempt.clock() + RACE.joint_seconds))
        baseline = evaluate(ctx, ctx.problem.source, EvaluationOptions(judged=False, screened=True))
        if not baseline.outcome.good:
            message = f"the models together cannot be measured: {baseline.outcome} ({baseline.message})"
            raise InputError(message, where=self.record.name)
        attempt.observer.on_baseline(baseline.metrics)
        choice = SetChoice(ctx, self._description, self.parts, baseline)
        best = choice.choose()
        parts = [_result_of(part, part.searched, choice.model(part)) for part in self.parts]
        # The best lossy model of a part in a run without data is not judged in the set.
        unjudged = [part for part in self.parts if part.searched.best_lossy]
        lossy = [lossy_note(part.searched, f"{part.name}: best lossy model") for part in unjudged]
        result = self._result(parts)
        return replace(
            result,
            status=NONE_MEETS if best is None else "finished",
            baseline=source_model(ctx, baseline).as_source,
            best=best,
            front=() if best is None or best.is_source else (best,),
            notes=(*result.notes, *choice.notes, *lossy),
            undecided=choice.undecided,
        )

    def export(self, result: RunResult, out: Path) -> RunResult:
        """Write the best set as a package to `out`; the returned result has its path."""
        return export_best(self.resources.store, self.record, result, out, self.resources.pool, self.request.observer)

    def export_incumbent(self, out: Path) -> bool:
        """Export the set of the best models so far, if one is better than its source; true if there was one."""
        parts = self._parts_so_far()
        changed = [part for part in parts if not part.model.is_source]
        if changed:
            self._write_interim(parts, out)
            changes = "; ".join(f"{part.name} {', '.join(gains(part.result, part.model))}" for part in changed)
            note = f"wrote the best models so far to {shown_folder(out)}/, not measured together yet: {changes}"
            self.request.observer.on_note(note)
        return bool(changed)

    def opened(self, part: Part) -> Session:
        """Open the session of a part, which keeps the whole set in the output folder."""
        session = open_session(part.request, part.problem, self.resources, time.monotonic(), parent=self.record)
        session.interim_package = self._package
        return session

    def _parts_so_far(self) -> list[PartResult]:
        """The results of the parts whose search has begun, each with its best model."""
        parts = []
        for part in self.parts:
            with suppress(InputError):  # a part without a trial has no result yet
                if part.session is not None:
                    result = part.result or result_of(part.session.record)
                    parts.append(_result_of(part, result, result.best or result.baseline))
        return parts

    def _write_interim(self, parts: Sequence[PartResult], out: Path) -> None:
        """Write the set of the best models so far, and the sources of the others. They were not measured together."""
        store, searched = self.resources.store, {part.name: part for part in parts}
        packages = {part.name: self._interim_package(part, searched.get(part.name)) for part in self.parts}
        models = {name: package.model for name, package in packages.items()}
        chosen = ModelResult(chain=chains_text(models))
        so_far = [_result_of(part, packages[part.name].result, models[part.name]) for part in self.parts]
        whole = replace(self._result(parts), status="running", best=chosen, parts=tuple(so_far))
        package = replace(Package(self.record, whole, chosen), scripts_may_run=True)
        candidates = {name: model.candidate for name, model in models.items()}
        description = with_candidates(self._description, candidates, store)
        export_set(store, SetPackage(package, description, packages), out, self.resources.pool)

    def _interim_package(self, part: Part, so_far: PartResult | None) -> Package:
        """The package of a part's best model so far; of its source model before it has one."""
        if so_far is not None:
            package = Package(self.resources.store.runs.get(so_far.result.run), so_far.result, so_far.model)
        else:
            source, settings = part.problem.source, settings_of(part.request, part.problem)
            record = RunRecord(self.record.id, part.name, part.problem.identity, source.artifact, {}, settings)
            result = RunResult(self.record.id, "running", baseline=source_result(source.artifact))
            package = Package(record, result, replace(result.baseline, session_options=source.session_options))
        return replace(package, scripts_may_run=True)

    def _result(self, parts: Sequence[PartResult]) -> RunResult:
        """The result of the searches of these parts, without the whole set."""
        result = self.joined([part.result for part in parts])
        evaluations = result.evaluations + self.ctx.attempt.counts.of("evaluations")
        lacks_data = any(note.kind is NoteKind.NO_DATA for note in self.notes)
        return replace(result, evaluations=evaluations, lacks_data=lacks_data, parts=tuple(parts))


def _result_of(part: Part, result: RunResult, model: ModelResult) -> PartResult:
    return PartResult(part.name, result, share=part.share, model=model)


@dataclass
class SetChoice:
    """The choice of the models of one set."""

    ctx: RunContext
    description: ModelSet
    parts: Sequence[Part]
    """All of them searched."""
    baseline: Measurements
    """The source set."""
    chosen: dict[str, ModelResult] = field(default_factory=dict)
    """By part; the source where a part is missing."""
    notes: list[str] = field(default_factory=list)
    undecided: str = ""
    """The reason why the models were not judged together; empty if they were."""

    def model(self, part: Part) -> ModelResult:
        """The model of a part in the set."""
        return self.chosen.get(part.name, part.searched.baseline)

    def choose(self) -> ModelResult | None:
        """Choose a model for each part and measure the set; return it, or the source set if it is not certainly worse.

        None if neither meets the constraints.
        """
        for part in sorted(self.parts, key=lambda part: part.share, reverse=True):
            self._choose_for(part)
        best = self._measured_set() if self.chosen else None
        if best is not None:
            return best
        self.chosen = {}
        if self.baseline.violation <= 0:
            return source_model(self.ctx, self.baseline)
        return None

    def _choose_for(self, part: Part) -> None:
        """Take the first of a part's models with which the set keeps its quality."""
        quality = tuple(metric.name for metric in self.ctx.problem.goal.metrics if metric.kind in QUALITY_KINDS)
        for model in _to_try(part):
            candidate = self._stored({**self.chosen, part.name: model})
            measurements = evaluate(self.ctx, candidate, EvaluationOptions(metrics=quality))
            if measurements.outcome.good and measurements.violation <= 0:
                self.chosen[part.name] = model
                return
            if measurements.outcome is Outcome.TIMEOUT:
                self.undecided = TIME_UP
                return
            reason = measurements.message or measurements.worst
            self.notes.append(f"{part.name}: {model.chain} is not for the set: {reason}")

    def _measured_set(self) -> ModelResult | None:
        """Measure the set with the chosen models; None, and a note, if it is not certainly better than the source."""
        candidate, chains = self._stored(self.chosen), chains_text({part.name: self.model(part) for part in self.parts})
        measurements = measure_exactly(self.ctx, candidate, self.baseline.metrics)
        objective = self.ctx.problem.goal.objectives[0]
        ratio = measurements.ratios.get(objective.metric, Estimate.exact(1.0))
        if measurements.outcome is Outcome.TIMEOUT:
            self.undecided = TIME_UP
            return None
        if not measurements.outcome.good or measurements.violation > 0:
            reason = measurements.message or measurements.worst
            self.notes.append(f"together ({chains}): {reason}; keeping your models")
            return None
        if not ratio.is_gain(objective.goal):
            self.notes.append(f"better by themselves, but not measurably together ({chains}); keeping your models")
            return None
        summary, caveats = stored_summary(self.ctx, measurements.keys)
        return ModelResult(
            artifact=candidate.artifact,
            path=self.ctx.model_path(candidate),
            chain=chains,
            metrics=values_of(measurements.metrics),
            intervals=dict(measurements.metrics),
            ratios=dict(measurements.ratios),
            flags=(*measurements.reasons, *caveats),
            unsure=measurements.unsure,
            measured=summary,
        )

    def _stored(self, models: Mapping[str, ModelResult]) -> Candidate:
        """The set with these models, and the sources of the other parts."""
        candidates = {part.name: part.problem.source for part in self.parts}
        candidates |= {name: model.candidate for name, model in models.items()}
        return store_set(self.ctx.store, self.description, candidates)


def _to_try(part: Part) -> list[ModelResult]:
    """The models of a part to try in the set: the best one, then the gaining models of the front, best first."""
    best, objective = part.searched.better_model, part.problem.goal.objectives[0]
    if best is None:
        return []
    rest: list[tuple[float, ModelResult]] = []
    for model in part.searched.front:
        ratio = model.ratios.get(objective.metric, Estimate.exact(1.0)).value
        gain = ratio - 1 if objective.goal == "maximize" else 1 - ratio
        if gain > 0 and model.candidate.key != best.candidate.key and UNVERIFIED not in model.flags:
            rest.append((gain, model))
    rest.sort(key=lambda pair: pair[0], reverse=True)
    return [best, *(model for _, model in rest)][: RACE.fallbacks]


def chains_text(models: Mapping[str, ModelResult]) -> str:
    """The chains of a set's models: `encoder: fuse -> dynamic; decoder: source`."""
    return "; ".join(f"{name}: {model.short_chain}" for name, model in models.items())
