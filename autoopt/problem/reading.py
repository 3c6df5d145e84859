"""Calls before there is a run: they read what the user named, and have to succeed for a command to continue."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from autoopt.errors import InputError, SystemFailure, raise_if_disk_full
from autoopt.outcome import Outcome
from autoopt.problem.resources import Resources
from autoopt.workers import CallResult, WorkerPool, reading_call
from autoopt.workers.pool import READING
from autoopt.workers.quarantine import Subject

ADMIT: Final = "autoopt.model.worker:admit"
INSPECT: Final = "autoopt.model.worker:inspect"
LOAD: Final = "autoopt.model.worker:load"
NAME_DATA: Final = "autoopt.model.worker:name_data"
LOCATE: Final = "autoopt.model.worker:locate"
RUNTIME: Final = "autoopt.model.worker:runtime"
DESCRIBE_DATA: Final = "autoopt.data.worker:describe"
"""The worker functions that read models, runtimes and data; `registry.DESCRIBE` reads scripts."""
READ_SECONDS: Final = 60.0
"""Time limit of a call that reads a model, data or a script."""
SLOWEST_COPY: Final = 20e6
"""Bytes a second that reading and storing a model gets on a busy machine with a slow disk, at least."""


def admission_seconds(source: str) -> float:
    """Return the time limit of `ADMIT` for a model, a folder or a URL: it grows with the files in a local folder."""
    path = Path(source)
    try:
        with os.scandir(path if path.is_dir() else path.parent) as entries:
            size = sum(entry.stat().st_size for entry in entries if entry.is_file())
    except OSError:  # a URL, or no such folder, which the worker reports
        size = 0
    return READ_SECONDS + size / SLOWEST_COPY


def ask_worker(
    pool: WorkerPool, function: str, payload: Mapping[str, object], where: str, seconds: float = READ_SECONDS
) -> dict[str, Any]:
    """Call a worker function `module:function` that reads `where`; raises the errors of `value_of`.

    It does not wait at the gate, so that the user learns of a wrong label at once.
    """
    pool.warm(READING, workers=1)
    return value_of(reading_call(pool, function, dict(payload), seconds), where, seconds)


def value_of(result: CallResult, where: str, seconds: float = READ_SECONDS) -> dict[str, Any]:
    """Return the value of a call that read `where` within a time limit in seconds.

    Raises:
        InputError: The worker refused it, or reading it broke the worker or a limit.
        SystemFailure: Any other end.
    """
    if result.outcome.good and result.value is not None:
        return result.value
    if result.outcome in (Outcome.REFUSED, Outcome.FAILED) or result.error is not None:
        raise result.to_exception(where)
    match result.outcome:
        case Outcome.OUT_OF_MEMORY:
            reason = "reading it exceeds the memory limit"
        case Outcome.TIMEOUT:
            reason = f"reading it takes more than {seconds:.0f} s"
        case Outcome.CRASHED:
            reason = f"reading it crashes the process ({result.message})"
        case _:
            raise SystemFailure(result.message, where=where)
    raise InputError(reason, where=where)


def first_call(
    resources: Resources,
    function: str,
    payload: dict[str, Any],
    *,
    subject: Callable[[], str],
    limit: float,
    call: Callable[[WorkerPool, str, dict[str, Any], float], CallResult] = reading_call,
) -> CallResult:
    """Call a worker function `module:function` with a model before there is a run.

    `subject` computes the digest of what the worker reads, and is called only if any worker has died before. `limit` is
    in seconds. `call` says how: `repeated_call` or `gated_call` for what is more than reading.
    """
    quarantine = resources.quarantine
    if quarantine.any:
        reason = quarantine.reason(Subject.model(subject()))
        if reason is not None:
            return CallResult(Outcome.CRASHED, message=reason, transient=True)
    resources.pool.warm(READING, workers=1)
    result = call(resources.pool, function, payload, limit)
    raise_if_disk_full(result.message)
    for step in (result.value or {}).get("steps", ()):
        raise_if_disk_full(step["message"])
    if result.died:
        quarantine.note(Subject.model(subject()), result)
    return result
