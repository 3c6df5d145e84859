"""A check of one model against a package or an earlier run, without a zoo."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from autoopt.engine.run.output_folder import INPUTS, RECIPE_FILE
from autoopt.engine.run.session import Session, best_candidates, search_inline
from autoopt.errors import InputError
from autoopt.json_codec import JsonTypeError, from_json, read_object
from autoopt.metrics import Estimate, Objective, is_ratio_metric
from autoopt.model.files import model_in
from autoopt.model.model_set import MODEL_SET
from autoopt.outcome import Outcome
from autoopt.problem.admission import admit
from autoopt.problem.environment import environment
from autoopt.problem.run_request import RunRequest
from autoopt.results import ModelResult, RunResult, SweepEntry, SweepResult, Trial, source_result
from autoopt.results.sweep import OK
from autoopt.spec.proposal_options import names_model
from autoopt.store import RunRecord, open_store
from autoopt.store.finished import result_of
from autoopt.target import Target
from autoopt.zoo.sweep_comparison import EarlierEntry, compare_entry
from autoopt.zoo.sweep_entry import EntryRunner
from autoopt.zoo.sweep_request import SearchWith, SweepRequest

TARGET_FIELDS: Final = ("name", "device", "execution_provider", "threads")
"""Fields of a recipe's target that say how its model was measured."""


@dataclass(frozen=True)
class Known:
    """The result to compare with, and the run that measures it again."""

    name: str
    last: RunResult
    request: RunRequest
    search: SearchWith


@dataclass(frozen=True)
class Recipe:
    """A package's `recipe.json`, as far as it tells of its model."""

    result: str
    """Digest of the model."""
    chain: str
    session_options: Mapping[str, Any]
    metrics: Mapping[str, float]
    ratios: Mapping[str, Estimate]
    objectives: tuple[Objective, ...]
    target: Target
    source: str = ""
    run: str = ""
    evaluation: Mapping[str, Any] | None = None


def check_baseline(model: Path, baseline: str, request: SweepRequest, data: str | None = None) -> SweepResult:
    """Measure `model` and the best model of an earlier run in turns, and compare with the figures of that run.

    `baseline` is the run, or a package that it wrote. Data and goal are the run's. Where the store does not have the
    run of a package, its data are read from `data`, else from where the run had them; without either, only what needs
    no data is compared.

    Raises:
        InputError: There is no such run or package, or the run has several targets or models.
    """
    began = time.monotonic()
    known, before = _known(model, baseline, request, data)
    earlier = [before]
    asked = replace(
        known.request,
        model=str(model),
        search={**known.request.search, **request.search},
        workers=request.workers,
        out=None,
        observer=request.observer,
    )
    if request.data_root is not None:
        asked = replace(asked, data_root=request.data_root)
    entry = SweepEntry(known.name, "refused", path=str(model), environment=environment())
    runner = EntryRunner(replace(request, nightly=True), known.search, "", f"check {uuid4().hex}")
    entry = runner.measured(asked, entry, earlier)
    entry = replace(entry, compared=compare_entry(entry, earlier), seconds=round(time.monotonic() - began, 3))
    names = (entry.name,)
    return SweepResult(
        name=known.name,
        zoo=str(model),
        nightly=True,
        models=(_with_caveat(entry, known.last),),
        regressions=names if entry.compared.regressed else (),
        improvements=names if entry.compared.improved else (),
        seconds=entry.seconds,
    )


def _known(model: Path, baseline: str, request: SweepRequest, data: str | None) -> tuple[Known, EarlierEntry]:
    """The run of the store, or what the package has of it."""
    package = Path(baseline)
    recipe = read_object(package / RECIPE_FILE)
    if (package / MODEL_SET).is_file():
        raise InputError("holds several models", where=baseline, remedy="check them in a zoo")
    if package.is_dir() and not recipe:
        raise InputError(f"no package here: {RECIPE_FILE} is missing", where=baseline)
    run = str(recipe.get("run") or baseline)
    with open_store(home=request.home) as store:
        has_run = data is None and (not recipe or store.runs.exists(run))
        record = store.runs.get(run) if has_run else None
    known = _of_package(package, recipe, data) if record is None else _of_run(record, model, baseline)
    before = SweepEntry(known.name, OK, result=known.last, environment=recipe.get("environment") or {})
    return known, EarlierEntry(run, before)


def _of_run(record: RunRecord, model: Path, baseline: str) -> Known:
    """A run of the store, with its data."""
    last = result_of(record)
    if last.targets or last.parts:
        raise InputError(f"run {record.id} has several targets or models", where=baseline, remedy="check them in a zoo")
    asked = RunRequest.from_json(record.settings["request"])
    if names_model(asked.dag):
        asked = replace(asked, dag=str(model))
    asked = replace(asked, candidates=best_candidates(last), again=None)
    return Known(record.name, last, asked, search_inline)


def _of_package(package: Path, document: Mapping[str, Any], data: str | None) -> Known:
    """A package whose run is on another machine: it has the model and its figures."""
    try:
        recipe = from_json(Recipe, document)
    except JsonTypeError as error:
        raise InputError(f"no recipe that autoopt wrote ({error})", where=str(package / RECIPE_FILE)) from None
    if recipe.target.python:  # a recipe is only read: it does not choose what runs
        reason = f"its model runs in another interpreter, {recipe.target.python}"
        raise InputError(reason, where=str(package), remedy="name the run instead")
    best = ModelResult(
        artifact=recipe.result,
        session_options=recipe.session_options,
        chain=recipe.chain,
        metrics=recipe.metrics,
        ratios=recipe.ratios,
    )
    objectives = tuple(objective for objective in recipe.objectives if is_ratio_metric(objective.metric))
    last = RunResult(recipe.run, OK, baseline=source_result(recipe.source), best=best, objectives=objectives)
    dag = _dag(package, recipe, objectives, _evaluation(recipe.evaluation or {}, data))
    asked = RunRequest(dag, candidates=(best.candidate.key,), again="all")
    return Known(package.absolute().name, last, asked, partial(_measure, package, best))


def _dag(
    package: Path, recipe: Recipe, objectives: Sequence[Objective], evaluation: dict[str, Any] | None
) -> dict[str, Any]:
    """A DAG that measures the package's model as its run did; its only chain is never asked for."""
    dag: dict[str, Any] = {"name": package.name, "passes": ["name_fix"], "chains": [["name_fix"]]}
    dag["target"] = {name: getattr(recipe.target, name) for name in TARGET_FIELDS if getattr(recipe.target, name)}
    if objectives:
        dag["objectives"] = [{"metric": objective.metric, "goal": objective.goal} for objective in objectives]
    if evaluation is not None:  # the default limit has the metric of the labels measured
        return {**dag, "data": {"evaluation": evaluation}}
    dag["constraints"] = []
    if (package / INPUTS).is_file():
        dag["data"] = {"latency": str((package / INPUTS).absolute())}
    return dag


def _measure(package: Path, best: ModelResult, session: Session) -> RunResult:
    """In place of a search: measure the package's model."""
    candidate, _ = admit(session.ctx.resources, model_in(package))
    if candidate.artifact != best.artifact:
        raise InputError("is not the model of the recipe beside it", where=str(model_in(package)))
    candidate = replace(candidate, session_options=best.session_options)
    trial = Trial(session.ctx.run, 0, "", {}, best.chain, outcome=Outcome.OK, candidate=candidate)
    return session.choose_among([trial])


def _evaluation(recorded: Mapping[str, Any], data: str | None) -> dict[str, Any] | None:
    """The evaluation data, read as the run read them; None if they are not here, or a script reads them.

    Raises:
        InputError: There is no file or folder `data`, or only the script could read it.
    """
    if data is not None:
        return _named_data(recorded, data)
    path = recorded.get("path")
    if path is None or recorded.get("user_script") or not Path(path).exists():
        return None
    return {**recorded, "path": str(Path(path).absolute())}


def _named_data(recorded: Mapping[str, Any], data: str) -> dict[str, Any]:
    is_url = "://" in data
    if not is_url and not Path(data).exists():
        raise InputError(f"no such file or folder: {data}", where="--data")
    if recorded.get("user_script"):
        reason = "a script read the data of this package's run, and a package runs none"
        raise InputError(reason, where="--data", remedy="name the run instead")
    return {**recorded, "path": data if is_url else str(Path(data).absolute())}


def _with_caveat(entry: SweepEntry, last: RunResult) -> SweepEntry:
    """The entry with a line on what could not be compared."""
    if entry.result is None or entry.best is None or last.best is None:
        return entry
    left_out = [name for name in last.best.metrics if name not in entry.best.metrics]
    if not left_out:
        return entry
    reason = f"not compared: {', '.join(left_out)}; name the data of run {last.run} with --data"
    best = replace(entry.best, flags=(*entry.best.flags, reason))
    return replace(entry, result=replace(entry.result, best=best))
