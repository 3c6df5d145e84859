"""The lineage of a model as the document that `autoopt lineage --json` prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from autoopt.engine.tools.measured_model import target_of
from autoopt.engine.work.rounds import MEASUREMENT
from autoopt.errors import InputError
from autoopt.json_codec import read_object
from autoopt.model.candidate import Candidate
from autoopt.model.files import digest_file
from autoopt.store import Store
from autoopt.store.finished import result_of

RUNS: Final = "'autoopt runs' lists the runs"


def lineage_document(store: Store, what: str, target: str | None = None) -> dict[str, Any]:
    """The steps to a model: a file, an artifact, or the best one of a run or of one of its `target`s.

    Of a run over a model set, `models` has the document of each chosen model by its name.

    Raises:
        InputError: there is no such run, artifact or file, the store knows nothing of the file, or the run has no best
            model.
    """
    is_file = Path(what).is_file()
    if target is None and is_file:
        return _document(store, _of_file(store, Path(what)))
    if target is None and what != "latest" and not store.runs.exists(what):
        if not store.artifacts.exists(what):
            raise InputError("no run or artifact of this store, and no file, has this name", where=what, remedy=RUNS)
        return _document(store, what)
    result = result_of(store.runs.get(what))
    if result.parts:
        return {"models": {part.name: _document(store, part.model.candidate) for part in result.parts}}
    if target is not None:
        result = target_of(result, target).result
    if result.best is None:
        raise InputError(f"run {result.run} found no model that meets the constraints")
    return _document(store, result.best.candidate)


def _document(store: Store, model: Candidate | str) -> dict[str, Any]:
    """The document of a model; each step with metrics and ratios of its result, from the first measurement.

    Rounds of races count in the results of runs, pooled.
    """
    document = store.lineage.trace(model).to_json()
    for step in document.get("steps") or ():
        ratios: dict[str, float] = {}
        metrics: dict[str, float] = {}
        for evaluation in store.results.evaluations_of(Candidate(step["output"], step.get("session_options") or {})):
            if evaluation.outcome.good and MEASUREMENT not in evaluation.details:
                ratios.update({name: ratio.value for name, ratio in evaluation.ratios.items()})
                metrics.update({name: metric.value for name, metric in evaluation.metrics.items()})
        if ratios:
            step["ratios"] = ratios
        if metrics:
            step["metrics"] = metrics
    return document


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
