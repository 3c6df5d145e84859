"""A check of one model against a package or an earlier run, without a zoo."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
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

NO_SEARCH: Final = {"passes": ["name_fix"], "chains": [["name_fix"]], "constraints": []}
"""The graph of a check that has nothing but a package."""
TARGET_FIELDS: Final = ("name", "device", "execution_provider", "threads")
"""Fields of a recipe's target that say how its model was measured."""


@dataclass(frozen=True)
class Known:
    """The result to compare with, and the run that measures it again."""

    name: str
    last: RunResult
    request: RunRequest
    search: SearchWith


def check_baseline(model: Path, baseline: str, request: SweepRequest, data: str | None = None) -> SweepResult:
    """Measure `model` and the best model of an earlier run in turns, and compare with the figures of that run.

    `baseline` is the run, or a package that it wrote. Data and goal are the run's. Where the store does not have the
    run of a package, its data are read from `data`, else from where the run had them; without either, only what needs
    no data is compared.

    Raises:
        InputError: There is no such run or package, or the run has several targets or models.
    """
    began = time.monotonic()
    recipe = read_object(Path(baseline) / RECIPE_FILE)
    if (Path(baseline) / MODEL_SET).is_file():
        raise InputError("holds several models", where=baseline, remedy="check them in a zoo")
    if Path(baseline).is_dir() and not recipe:
        raise InputError(f"no package here: {RECIPE_FILE} is missing", where=baseline)
    run = str(recipe.get("run") or baseline)
    with open_store(home=request.home) as store:
        has_run = data is None and (not recipe or store.runs.exists(run))
        record = store.runs.get(run) if has_run else None
    known = _of_package(Path(baseline), recipe, data) if record is None else _of_run(record, model, baseline)
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
    before = SweepEntry(known.name, OK, result=known.last, environment=recipe.get("environment") or {})
    earlier = [EarlierEntry(run, before)]
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


def _of_package(package: Path, recipe: Mapping[str, Any], data: str | None) -> Known:
    """A package whose run is on another machine: it has the model and its figures."""
    try:
        best = ModelResult(
            artifact=str(recipe["result"]),
            session_options=from_json(dict[str, Any], recipe["session_options"]),
            chain=str(recipe["chain"]),
            metrics=from_json(dict[str, float], recipe["metrics"]),
            ratios=from_json(dict[str, Estimate], recipe["ratios"]),
        )
        objectives = from_json(tuple[Objective, ...], recipe["objectives"])
        target = from_json(Target, recipe["target"])
        recorded = from_json(dict[str, Any], recipe.get("evaluation") or {})
    except (KeyError, JsonTypeError) as error:
        raise InputError(f"no recipe that autoopt wrote ({error})", where=str(package / RECIPE_FILE)) from None
    if target.python:  # a recipe is only read: it does not choose what runs
        reason = f"its model runs in another interpreter, {target.python}"
        raise InputError(reason, where=str(package), remedy="name the run instead")
    asked = [objective for objective in objectives if is_ratio_metric(objective.metric)]
    dag: dict[str, Any] = {"name": package.name, **NO_SEARCH}
    dag["target"] = {name: getattr(target, name) for name in TARGET_FIELDS if getattr(target, name)}
    if asked:
        dag["objectives"] = [{"metric": objective.metric, "goal": objective.goal} for objective in asked]
    evaluation = _evaluation(recorded, data)
    if evaluation is not None:
        dag["data"] = {"evaluation": evaluation}
        del dag["constraints"]  # the default limit has the metric of the labels measured
    elif (package / INPUTS).is_file():
        dag["data"] = {"latency": str((package / INPUTS).absolute())}

    def measure(session: Session) -> RunResult:
        candidate, _ = admit(session.ctx.resources, model_in(package))
        if candidate.artifact != best.artifact:
            raise InputError("is not the model of the recipe beside it", where=str(model_in(package)))
        candidate = replace(candidate, session_options=best.session_options)
        trial = Trial(session.ctx.run, 0, "", {}, best.chain, outcome=Outcome.OK, candidate=candidate)
        return session.choose_among([trial])

    source = source_result(str(recipe.get("source")))
    last = RunResult(str(recipe.get("run")), OK, baseline=source, best=best, objectives=tuple(asked))
    return Known(package.absolute().name, last, RunRequest(dag, candidates=(best.candidate.key,), again="all"), measure)


def _evaluation(recorded: Mapping[str, Any], data: str | None) -> dict[str, Any] | None:
    """The evaluation data, read as the run read them; None if they are not here, or a script reads them.

    Raises:
        InputError: There is no file or folder `data`, or only the script could read it.
    """
    path = data or recorded.get("path")
    is_url = data is not None and "://" in data
    if data is not None and not is_url and not Path(data).exists():
        raise InputError(f"no such file or folder: {data}", where="--data")
    if recorded.get("user_script"):
        if data is None:
            return None
        reason = "a script read the data of this package's run, and a package runs none"
        raise InputError(reason, where="--data", remedy="name the run instead")
    if is_url:
        return {**recorded, "path": data}
    if path is None or not Path(path).exists():
        return None
    return {**recorded, "path": str(Path(path).absolute())}


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
