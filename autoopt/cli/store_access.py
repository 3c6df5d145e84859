"""The store as commands that only read it open it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from autoopt.errors import InputError
from autoopt.settings import settings

if TYPE_CHECKING:
    from autoopt.store import RunRecord, Store


@contextmanager
def existing_store() -> Iterator[Store]:
    """The store of these settings.

    Raises:
        InputError: there is none yet.
    """
    from autoopt.store import open_store

    need_store()
    here = settings()
    with open_store(here.db_url, here.home) as store:
        yield store


def need_store() -> None:
    """Refuse to go on where there is no store of these settings.

    Raises:
        InputError: there is none yet.
    """
    here = settings()
    if here.db_url is None and not (here.home / "autoopt.db").exists():
        raise InputError("no store here", where=str(here.home), remedy="'autoopt run' makes one; AUTOOPT_HOME moves it")


def result_of(run: RunRecord) -> dict[str, Any]:
    """The result document of a run.

    Raises:
        InputError: it has none, because it is still running or was interrupted.
    """
    if run.status != "finished" or not run.result:
        reason = str((run.result or {}).get("error", ""))
        remedy = "" if run.status == "failed" else f"'autoopt resume {run.id}' continues it"
        raise InputError(f"run {run.id} is {run.status}" + (f" ({reason})" if reason else ""), remedy=remedy)
    return dict(run.result)


def target_of(result: dict[str, Any], target: str) -> dict[str, Any]:
    """The result document of one of the targets of a run over several.

    Raises:
        InputError: the run has no such target.
    """
    targets = {str(part["name"]): dict(part) for part in result.get("targets") or ()}
    if target not in targets:
        remedy = f"it has: {', '.join(targets)}" if targets else "it has one target only"
        raise InputError(f"run {result['run']} has no target {target!r}", remedy=remedy)
    return targets[target]
