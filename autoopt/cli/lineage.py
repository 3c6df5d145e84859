"""`autoopt lineage`: how a model came to be."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.runs import TargetName
from autoopt.cli.store_access import existing_store, result_of, target_of
from autoopt.errors import InputError

if TYPE_CHECKING:
    from autoopt.model.candidate import Candidate
    from autoopt.store import Store

What = Annotated[str, typer.Argument(help="A model file, an artifact's digest or the beginning of one, or a run.")]


def lineage(what: What = "latest", target: TargetName = None, as_json: AsJson = False) -> None:
    """Show every pass from the source model to a model, with parameters and environment.

    For a run (its id, or 'latest') that is the run's best model; of a run over several targets the best single one, or
    with --target the best for that target.
    """
    from autoopt.report.lineage import write_lineage

    with existing_store() as store:
        document = store.lineage.trace(_meant(store, what, target)).to_json()
    if as_json:
        print_json(document)
    else:
        write_lineage(document, sys.stdout)


def _meant(store: Store, what: str, target: str | None) -> Candidate | str:
    if target is not None:
        return best_of(store, what, target)
    if Path(what).is_file():
        return _of_file(store, Path(what))
    if what == "latest" or any(run.id.startswith(what) for run in store.runs.all()):
        return best_of(store, what)
    return what


def _of_file(store: Store, path: Path) -> Candidate | str:
    """A model file by its digest; with the recipe beside it where that is of this model or the digest says nothing,
    because the model has external data."""
    from autoopt.model.candidate import Candidate
    from autoopt.model.files import digest_file

    own, recipe = digest_file(path), _recipe(path.with_name("recipe.json"))
    known = any(artifact.digest == own for artifact in store.artifacts.all())
    if recipe and (recipe.get("result") == own or not known):
        return Candidate(str(recipe.get("result", "")), dict(recipe.get("session_options") or {}))
    return own


def _recipe(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def best_of(store: Store, run: str, target: str | None = None) -> Candidate:
    """The best candidate of a run, for one of its targets where that is named.

    Raises:
        InputError: no such run, not finished, or it found none.
    """
    result = result_of(store.runs.get(run))
    best = result.best if target is None else target_of(result, target).result.best
    if best is None:
        raise InputError(f"run {run} found no model that meets the constraints")
    return best.candidate
