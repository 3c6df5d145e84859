"""A model of a run with its figures, as a package: the best one, or the one of a trial or a target."""

from __future__ import annotations

from dataclasses import replace

from autoopt.engine.run.package import Package
from autoopt.engine.run.select import recorded_model
from autoopt.errors import InputError
from autoopt.results import ModelResult, RunResult, TargetResult
from autoopt.store import RunRecord, Store
from autoopt.store.finished import result_of


def package_of(store: Store, run: RunRecord, trial: int | None = None, target: str | None = None) -> Package:
    """Describe the package of a run's best model, or of a trial's model.

    The run may still be under way, or have been cancelled. Without a `target`, a run over several has the best of all.

    Raises:
        InputError: there is no such target, trial or model.
    """
    result, record = result_of(run), run
    name = target or (result.choice and result.choice.name)
    if name:
        part = target_of(result, name).result
        record = store.runs.get(part.run)
        result = part if target else replace(result, parts=part.parts)
    return Package(record, result, _model(store, record, result, trial))


def target_of(result: RunResult, name: str) -> TargetResult:
    """The result for one target of a multi-target run.

    Raises:
        InputError: the run has no such target.
    """
    for target in result.targets:
        if target.name == name:
            return target
    remedy = "it has a single target"
    if result.targets:
        remedy = f"it has: {', '.join(target.name for target in result.targets)}"
    raise InputError(f"run {result.run} has no target {name!r}", remedy=remedy)


def _model(store: Store, run: RunRecord, result: RunResult, trial: int | None) -> ModelResult:
    """The best model, or a trial's model."""
    if result.parts and (trial is not None or result.is_interim):
        reason = "its models are not measured together yet"
        if trial is not None:
            reason = "the trials are those of its models"
        runs = ", ".join(f"{part.result.run} ({part.name})" for part in result.parts)
        raise InputError(f"run {run.id}: {reason}", remedy=f"name the run of one: {runs}")
    if trial is None:
        if result.best is None:
            raise InputError(f"run {run.id} found no model that meets the constraints", remedy="name a trial")
        return result.best
    model = recorded_model(store, run.id, trial)
    for row in result.models:
        if row.candidate.key == model.candidate.key:
            return row
    return model
