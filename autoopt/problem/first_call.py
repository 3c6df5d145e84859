"""Calls with a model before there is a run, never with a quarantined one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from autoopt.errors import SystemFailure
from autoopt.outcome import Outcome
from autoopt.problem.resources import Resources
from autoopt.workers import CallResult, WorkerPool, reading_call
from autoopt.workers.pool import READING
from autoopt.workers.quarantine import Subject

NO_SPACE = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")
"""Texts of the system's errors for a full disk, as libraries pass them on."""
_ERROR_NAME = re.compile(r"^OSError: \[Errno \d+\] ")
"""The prefix of such an error."""


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


def raise_if_disk_full(message: str) -> None:
    """Raise for a full disk, which says nothing about the model and must not be stored as its failure."""
    if any(text in message for text in NO_SPACE):
        remedy = "free some space ('autoopt store gc' may), or move AUTOOPT_HOME or TMPDIR"
        raise SystemFailure(_ERROR_NAME.sub("", message), remedy=remedy)
