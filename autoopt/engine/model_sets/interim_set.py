"""The best models so far of a set as a package, which a run keeps in its output folder during the searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoopt.engine.model_sets.artifacts import chains_text, with_candidates
from autoopt.engine.model_sets.part import SetPart
from autoopt.engine.run.opening import settings_of
from autoopt.engine.run.package import Package, SetPackage
from autoopt.model.model_set import ModelSet
from autoopt.results import ModelResult, PartResult, RunResult
from autoopt.store import RunRecord, Store


def interim_package(
    store: Store, run: RunRecord, result: RunResult, description: ModelSet, parts: Sequence[SetPart]
) -> SetPackage:
    """Package the best models so far of a set, and the sources of the others. They were not measured together.

    Args:
        store: The store.
        run: The run over the set.
        result: Its interim result, with the parts whose search has begun.
        description: How the parts connect.
        parts: All parts.
    """
    results = {part.name: part for part in result.parts}
    packages, models = {}, {}
    for part in parts:
        so_far = results.get(part.name)
        if so_far is None:
            so_far = _not_searched(run, part)
            settings = settings_of(part.request, part.problem)
            record = RunRecord(run.id, part.name, part.problem.identity, part.source.artifact, settings=settings)
        else:
            record = store.runs.get(so_far.result.run)
        results[part.name], models[part.name] = so_far, so_far.model
        package = Package(record, so_far.result, so_far.model)
        packages[part.name] = replace(package, scripts_may_run=True)
    candidates = {name: model.candidate for name, model in models.items()}
    chosen = ModelResult(chain=chains_text(models))
    whole = replace(result, best=chosen, parts=tuple(results[part.name] for part in parts))
    package = replace(Package(run, whole, chosen), scripts_may_run=True)
    return SetPackage(package, with_candidates(description, candidates, store.artifacts), packages)


def _not_searched(run: RunRecord, part: SetPart) -> PartResult:
    """The result of a part whose search has not begun: its source model."""
    result = RunResult(run.id, "running")
    result = replace(result, baseline=replace(result.baseline, artifact=part.source.artifact))
    model = replace(result.baseline.model, session_options=part.source.session_options)
    return PartResult(part.name, part.share, result, model)
