"""Calls that read what the user named, and have to succeed for a command to continue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from autoopt.errors import InputError, SystemFailure
from autoopt.outcome import Outcome

if TYPE_CHECKING:  # `plan` starts no worker if it knows the model already
    from autoopt.workers import CallResult, WorkerPool

READ_SECONDS: Final = 60.0
"""Time limit of a call that reads a model, data or a script."""
MESSAGES: Final = {
    Outcome.OUT_OF_MEMORY: "reading it exceeds the memory limit",
    Outcome.TIMEOUT: f"reading it takes more than {READ_SECONDS:.0f} s",
    Outcome.CRASHED: "reading it crashes the process",
}


def ask_worker(pool: WorkerPool, function: str, payload: Mapping[str, object], where: str) -> dict[str, Any]:
    """Call a worker function `module:function` that reads `where`; the errors are those of `value_of`."""
    from autoopt.workers import gated_call

    return value_of(gated_call(pool, function, dict(payload), READ_SECONDS), where)


def value_of(result: CallResult, where: str) -> dict[str, Any]:
    """Return the value of a call that read `where` within `READ_SECONDS`.

    Raises:
        InputError: The worker refused it, or reading it broke the worker or a limit.
        SystemFailure: Any other end.
    """
    if result.outcome.good and result.value is not None:
        return result.value
    if result.outcome in (Outcome.REFUSED, Outcome.FAILED):
        raise result.to_exception(where)
    if result.outcome not in MESSAGES:
        raise SystemFailure(result.message, where=where)
    message = MESSAGES[result.outcome]
    if result.outcome is Outcome.CRASHED:
        message = f"{message} ({result.message})"
    raise InputError(message, where=where)
