"""The store for commands that only read it, and the options that name a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from autoopt.errors import AutooptError, InputError
from autoopt.settings import settings

if TYPE_CHECKING:
    from autoopt.model.candidate import Candidate
    from autoopt.results import RunResult
    from autoopt.store import RunRecord, Store

MOST_COMPLETED: Final = 1000
"""Runs that the completion of a command offers."""


def complete_run(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield `latest` and the ids of runs, each with its DAG and status; nothing if there is no store."""
    try:
        with existing_store() as store:
            runs = store.runs.newest(MOST_COMPLETED)
    except AutooptError:
        return
    if runs:
        yield "latest", runs[0].name
    for record in runs:
        yield record.id, f"{record.name}, {record.shown_status}"


RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or 'latest'.", autocompletion=complete_run),
]
ModelOrRun = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|RUN",
        help="A model file, an artifact's digest or the beginning of one, or a run.",
        autocompletion=complete_run,
    ),
]
TargetName = Annotated[str | None, typer.Option("--target", metavar="NAME", help="One target of a multi-target run.")]
AllowScript = Annotated[
    bool, typer.Option("--allow-script", help="Run the recorded user script, if its content is still the recorded one.")
]


@contextmanager
def existing_store() -> Iterator[Store]:
    """Open the store of the settings.

    Raises:
        InputError: there is no store yet.
    """
    from autoopt.store import open_store

    require_store()
    with open_store() as store:
        yield store


def require_store() -> None:
    """Refuse to create a store.

    Raises:
        InputError: there is no store yet.
    """
    from autoopt.store import store_exists
    from autoopt.store.files.artifacts import ArtifactFiles

    home = settings().home
    # Artifacts without a database are a lost database, which `open_store` reports.
    if not store_exists() and not ArtifactFiles(home / "artifacts").digests():
        remedy = "'autoopt run' creates one; set AUTOOPT_HOME to use another folder"
        raise InputError("no store here", where=str(home), remedy=remedy)


def result_of(run: RunRecord) -> RunResult:
    """The result of a run, or the best of its trials so far.

    Raises:
        InputError: the run has no trial yet, or was interrupted or failed before its first one.
    """
    from autoopt.store import finished

    return finished.result_of(run)


def models_of_set(store: Store, what: str) -> dict[str, Candidate]:
    """The chosen models of a run over a model set, by name; empty for any other run or model.

    Raises:
        InputError: the run has no result yet.
    """
    if Path(what).is_file() or not (what == "latest" or store.runs.exists(what)):
        return {}
    return {part.name: part.model.candidate for part in result_of(store.runs.get(what)).parts}


def best_of(store: Store, run: str, target: str | None = None) -> Candidate:
    """The best candidate of a run, or of one of its targets.

    Raises:
        InputError: no such run, the run has not finished, or it has no best model.
    """
    result = result_of(store.runs.get(run))
    if target is not None:
        from autoopt.engine.tools.measured_model import target_of

        result = target_of(result, target).result
    if result.best is None:
        raise InputError(f"run {run} found no model that meets the constraints")
    return result.best.candidate
