"""The store as commands that only read it open it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from autoopt.errors import InputError
from autoopt.settings import settings

if TYPE_CHECKING:
    from autoopt.results import RunResult, TargetResult
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


def result_of(run: RunRecord) -> RunResult:
    """The result of a run.

    Raises:
        InputError: it has none, because it is still running or was interrupted.
    """
    from autoopt.results import RunResult

    if run.status == "finished" and run.result:
        return RunResult.from_json(run.result)
    reason = str((run.result or {}).get("error", ""))
    text = f"run {run.id} is {run.status}"
    if reason:
        text = f"{text} ({reason})"
    raise InputError(text, remedy="" if run.status == "failed" else f"'autoopt resume {run.id}' continues it")


def target_of(result: RunResult, name: str) -> TargetResult:
    """The result for one of the targets of a run over several.

    Raises:
        InputError: the run has no such target.
    """
    for target in result.targets:
        if target.name == name:
            return target
    remedy = "it has one target only"
    if result.targets:
        remedy = f"it has: {', '.join(target.name for target in result.targets)}"
    raise InputError(f"run {result.run} has no target {name!r}", remedy=remedy)
