"""`store restore` and `store repair`: a store whose database was lost or damaged."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from autoopt.engine.tools.recipe import Recipe, read_recipe
from autoopt.json_codec import to_json
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.results import Baseline, ModelResult, RunResult
from autoopt.store import ModelRecord, PassRunRecord, RunRecord, Store, open_store
from autoopt.store.maintenance.backup import CopyResult, restore
from autoopt.store.maintenance.rebuild import add_artifact, adopt_artifacts, salvage, set_aside_damaged
from autoopt.store.opening import DATABASE_FILE
from autoopt.store.records import IMPLEMENTATION, IMPORTED, new_id
from autoopt.store.sql.store import require_sql

_RUN_ID: Final = re.compile(r"[0-9a-f]{12}")
_REPLAY_FIELDS: Final = ("calibration", "user_script", "scripts", "accelerator", "data_root")
"""Fields of a recipe that passes need to run again."""


@dataclass(frozen=True)
class RepairResult:
    """The content of a store after a repair."""

    set_aside: str
    """New name of the damaged database; empty if it was not damaged."""
    rows: int
    """Rows that could be read from it."""
    adopted: tuple[str, ...]
    """Intact artifacts that had no row."""
    damaged: tuple[str, ...]
    """Damaged artifacts without a row."""
    runs: tuple[str, ...]
    """Ids of the runs that recipes describe."""


def restore_store(folder: Path, url: str | None, home: Path) -> CopyResult:
    """Restore a backup. A damaged database is renamed, never removed.

    Raises:
        InputError: The folder is not a backup, or the store is not empty.
    """
    set_aside_damaged(url or home / DATABASE_FILE)
    with open_store(url, home, adopt=True) as store:
        return restore(folder, store)


def repair_store(url: str | None, home: Path, recipes: Sequence[Path] = ()) -> RepairResult:
    """Save what is left of a store: readable rows of a damaged database, intact artifacts, runs that recipes describe.

    A sound database keeps everything, and receives what it lacks.

    Raises:
        InputError: A recipe is wrong.
    """
    documents = [(file, *read_recipe(file)) for file in recipes]
    aside = set_aside_damaged(url or home / DATABASE_FILE)
    with open_store(url, home, adopt=True) as store:
        rows = salvage(store, aside) if aside is not None else 0
        adopted = adopt_artifacts(store)
        runs = [add_run(store, recipe, document, file) for file, recipe, document in documents]
    name = "" if aside is None else str(aside)
    return RepairResult(name, rows, adopted.digests, adopted.damaged, tuple(filter(None, runs)))


def add_run(store: Store, recipe: Recipe, document: dict[str, Any], file: Path) -> str:
    """Add the run that a recipe describes, marked as imported, with the lineage of its model.

    Returns:
        Its id; empty if the store has that run.
    """
    run = recipe.run if _RUN_ID.fullmatch(recipe.run) else new_id()
    if run in {record.id for record in store.runs.all()}:
        return ""
    _add_models(store, recipe)
    settings = {
        "replay_environment": {name: document.get(name) for name in _REPLAY_FIELDS},
        "target": recipe.measured_on.content,
        IMPORTED: {"file": str(file), "reuse": False},
    }
    identity = hashlib.sha256(f"{IMPORTED} {document.get('digest') or file}".encode()).hexdigest()
    name = recipe.chain or "recipe"
    store.runs.create(RunRecord(id=run, name=name, identity=identity, model=recipe.source, settings=settings))
    best = ModelResult(
        artifact=recipe.result,
        session_options=recipe.session_options or {},
        chain=recipe.chain,
        metrics=recipe.metrics,
        ratios=recipe.ratios,
    )
    _add_lineage(store, recipe, best.candidate, run)
    result = RunResult(run=run, status="finished", baseline=Baseline(recipe.source), best=best, front=(best,))
    store.runs.finish(run, "finished", result.to_json())
    return run


def _add_models(store: Store, recipe: Recipe) -> None:
    recorded = {record.digest for record in store.artifacts.all()}
    digests = {recipe.source, recipe.result, *(step.output for step in recipe.steps)}
    for digest in sorted(digests - recorded - {""}):
        add_artifact(require_sql(store), digest)
    if store.models.get(recipe.source) is None:
        store.models.add(ModelRecord(recipe.source, recipe.source[:12]))


def _add_lineage(store: Store, recipe: Recipe, result: Candidate, run: str) -> None:
    """Add the passes as pass runs under keys of their own, which no search looks up."""
    before = Candidate(recipe.source)
    for index, step in enumerate(recipe.steps):
        after = Candidate(step.output or recipe.result)
        if index == len(recipe.steps) - 1:
            after = result
        key = hashlib.sha256(f"{IMPORTED} {run} {index}".encode()).hexdigest()
        record = PassRunRecord(key, step.pass_name, step.params, before, Outcome.OK, after, run=run)
        if step.implementation is not None:
            record = replace(record, environment={IMPLEMENTATION: to_json(step.implementation)})
        if after.key != before.key:
            store.results.finish_pass_run(record)
        before = after
