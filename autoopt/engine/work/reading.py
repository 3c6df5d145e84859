"""Calls that read what the user named, and have to succeed for a command to continue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoopt.errors import InputError, SystemFailure
from autoopt.outcome import Outcome

if TYPE_CHECKING:  # `plan` starts no worker if it knows the model already
    from autoopt.workers import CallResult


def value_of(result: CallResult, where: str, seconds: float) -> dict[str, Any]:
    """The value of a call.

    Args:
        result: The end of the call.
        where: What the worker was to read.
        seconds: The time limit of the call.

    Raises:
        InputError: The worker refused it, or reading it broke the worker or a limit.
        SystemFailure: Any other end.
    """
    if result.outcome.good and result.value is not None:
        return result.value
    if result.outcome in (Outcome.REFUSED, Outcome.FAILED):
        raise result.to_exception(where)
    messages = {
        Outcome.OUT_OF_MEMORY: "reading it exceeds the memory limit",
        Outcome.TIMEOUT: f"reading it takes more than {seconds:.0f} s",
        Outcome.CRASHED: f"reading it crashes the process ({result.message})",
    }
    if result.outcome in messages:
        raise InputError(messages[result.outcome], where=where)
    raise SystemFailure(result.message, where=where)
