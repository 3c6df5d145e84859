"""The store for commands that only read it, and the options that name a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from autoopt.errors import AutooptError, InputError
from autoopt.settings import settings

if TYPE_CHECKING:
    from autoopt.store import Store

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
    from autoopt.store.artifact_files import ArtifactFiles

    home = settings().home
    # Artifacts without a database are a lost database, which `open_store` reports.
    if not store_exists() and not ArtifactFiles(home / "artifacts").digests():
        remedy = "'autoopt run' creates one; set AUTOOPT_HOME to use another folder"
        raise InputError("no store here", where=str(home), remedy=remedy)
