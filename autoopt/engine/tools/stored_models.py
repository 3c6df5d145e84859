"""Models of a store: the package of a run's model, and how a model was made. And two model files compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from autoopt.data.config import DataConfig
from autoopt.engine.run.package import Package
from autoopt.engine.run.select import recorded_model
from autoopt.engine.work.evaluations import Measurements
from autoopt.engine.work.meter_runs import MEASUREMENT
from autoopt.errors import InputError
from autoopt.json_codec import from_json, read_object
from autoopt.measure.layerwise import ModelComparison
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.candidate import Candidate
from autoopt.model.files import digest_file
from autoopt.model.model_file import ModelFile
from autoopt.results import ModelResult, PartResult, RunResult, values_of
from autoopt.store import RunRecord, Store
from autoopt.store.finished import result_of
from autoopt.workers import call_once

RUNS: Final = "'autoopt runs' lists the runs"
COMPARE_SECONDS: Final = 600.0
"""Time limit of a comparison of two models."""
COMPARED_ITEMS: Final = 4
"""Items that they run on."""


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


def target_of(result: RunResult, name: str) -> PartResult:
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


def lineage_document(store: Store, what: str, target: str | None = None) -> dict[str, Any]:
    """The steps to a model: a file, an artifact, or the best one of a run or of one of its `target`s.

    Of a run over a model set, `models` has the document of each chosen model by its name.

    Raises:
        InputError: there is no such run, artifact or file, the store knows nothing of the file, or the run has no best
            model.
    """
    model = None if target is not None else _of_file_or_artifact(store, what)
    if model is not None:
        return _document(store, model)
    result = result_of(store.runs.get(what))
    name = target or (result.choice and result.choice.name)
    if name:
        result = target_of(result, name).result
    if result.parts:
        return {"models": {part.name: _document(store, part.model.candidate) for part in result.parts}}
    if result.best is None:
        raise InputError(f"run {result.run} found no model that meets the constraints")
    return _document(store, result.best.candidate)


def _document(store: Store, model: Candidate | str) -> dict[str, Any]:
    """The document of a model; each step with metrics and ratios of its result, from the first measurement.

    Rounds of races count in the results of runs, pooled.
    """
    document = store.lineage.trace(model).to_json()
    for step in document.get("steps") or ():
        evaluations = store.results.evaluations_of(Candidate(step["output"], step.get("session_options") or {}))
        first = [each for each in evaluations if each.outcome.good and MEASUREMENT not in each.details]
        measured = Measurements.of(first)
        for name, values in (("ratios", values_of(measured.ratios)), ("metrics", values_of(measured.metrics))):
            if values:
                step[name] = values
    return document


def _of_file_or_artifact(store: Store, what: str) -> Candidate | str | None:
    """The model in a file, or an artifact by its digest; None if a run has this name."""
    if Path(what).is_file():
        return _of_file(store, Path(what))
    if what == "latest" or store.runs.exists(what):
        return None
    if not store.artifacts.exists(what):
        raise InputError("no run or artifact of this store, and no file, has this name", where=what, remedy=RUNS)
    return what


def _of_file(store: Store, path: Path) -> Candidate | str:
    """The candidate of a model file: the result of the recipe next to it, or the file's digest.

    The recipe counts if it belongs to this file, or if the digest is unknown because the model has external data.
    """
    digest = digest_file(path)
    recipe = read_object(path.with_name("recipe.json"))
    is_stored = store.artifacts.exists(digest)
    options = recipe.get("session_options") or {}
    belongs = recipe.get("result") == digest or not is_stored
    if recipe and belongs and isinstance(options, dict):
        return Candidate(str(recipe.get("result", "")), options)
    if not is_stored:
        raise InputError("no run of this store has read or made this file", where=str(path), remedy=RUNS)
    return digest


def compared_models(first: Path, second: Path, data: str | None) -> ModelComparison:
    """Compare a model with the one that it was made from, on a few items of the data or on generated ones.

    Raises:
        InputError: a file or the data cannot be read, or the models cannot be compared.
    """
    for path in (first, second):
        if not path.is_file():
            raise InputError("no such model", where=str(path))
    if data and Path(data).exists():
        data = str(Path(data).absolute())
    request = MeasureRequest(
        candidate=ModelFile(str(second.absolute())),
        source=ModelFile(str(first.absolute())),
        data=DataConfig.parse(data) if data else None,
        settings=MeasurementSettings(samples=COMPARED_ITEMS),
    )
    result = call_once("autoopt.measure.layerwise:compare_models", request.to_json(), COMPARE_SECONDS)
    if result.value is None:
        places = filter(None, (str(first.absolute()), str(second.absolute()), data))
        is_named = any(place in result.message for place in places)
        raise result.to_exception("" if is_named else f"{first} and {second}")
    return from_json(ModelComparison, result.value)
