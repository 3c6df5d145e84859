"""A check of one model against a package or an earlier run, without a zoo."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from autoopt.engine.run.output_folder import RECIPE_FILE
from autoopt.engine.run.session import best_candidates, search_inline
from autoopt.errors import InputError
from autoopt.json_codec import read_object
from autoopt.problem.environment import environment
from autoopt.problem.run_request import RunRequest
from autoopt.results import SweepEntry, SweepResult
from autoopt.results.sweep import OK
from autoopt.spec.proposal_options import names_model
from autoopt.store import open_store
from autoopt.store.finished import result_of
from autoopt.zoo.sweep_comparison import EarlierEntry, compare_entry
from autoopt.zoo.sweep_entry import EntryRunner
from autoopt.zoo.sweep_request import SweepRequest


def check_baseline(model: Path, baseline: str, request: SweepRequest) -> SweepResult:
    """Measure `model` and the best model of an earlier run in turns, and compare with the figures of that run.

    `baseline` is the run, or a package that it wrote. Data and goal are the run's.

    Raises:
        InputError: The store has no such run, or the run has several targets or models.
    """
    began = time.monotonic()
    recipe = read_object(Path(baseline) / RECIPE_FILE)
    if Path(baseline).is_dir() and not recipe:
        raise InputError(f"no package here: {RECIPE_FILE} is missing", where=baseline)
    with open_store(home=request.home) as store:
        record = store.runs.get(str(recipe.get("run") or baseline))
        last = result_of(record)
    if last.targets or last.parts:
        raise InputError(f"run {record.id} has several targets or models", where=baseline, remedy="check them in a zoo")
    asked = RunRequest.from_json(record.settings["request"])
    changes: dict[str, Any] = {"model": str(model)}
    if names_model(asked.dag):
        changes["dag"] = str(model)
    if request.data_root is not None:
        changes["data_root"] = request.data_root
    asked = replace(
        asked,
        candidates=best_candidates(last),
        search={**asked.search, **request.search},
        workers=request.workers,
        again=None,
        out=None,
        observer=request.observer,
        **changes,
    )
    before = SweepEntry(record.name, OK, result=last, environment=recipe.get("environment") or {})
    earlier = [EarlierEntry(record.id, before)]
    entry = SweepEntry(record.name, "refused", path=str(model), environment=environment())
    runner = EntryRunner(replace(request, nightly=True), search_inline, "", f"check {uuid4().hex}")
    entry = runner.measured(asked, entry, earlier)
    entry = replace(entry, compared=compare_entry(entry, earlier), seconds=round(time.monotonic() - began, 3))
    names = (entry.name,)
    return SweepResult(
        name=record.name,
        zoo=str(model),
        models=(entry,),
        regressions=names if entry.compared.regressed else (),
        improvements=names if entry.compared.improved else (),
        seconds=entry.seconds,
    )
