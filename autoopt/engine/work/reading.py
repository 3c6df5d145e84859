"""Calls that read what the user named, and have to succeed for a command to continue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoopt.errors import InputError, SystemFailure
from autoopt.outcome import Outcome

if TYPE_CHECKING:  # `plan` starts no worker if it knows the model already
    from autoopt.workers import CallResult


def value_of(called: CallResult, where: str, seconds: float) -> dict[str, Any]:
    """The value of a call.

    Args:
        called: The end of the call.
        where: What the worker was to read.
        seconds: The time limit of the call.

    Raises:
        InputError: The worker refused it, or reading it broke the worker or a limit.
        SystemFailure: Any other end.
    """
    if called.outcome.good and called.value is not None:
        return called.value
    if called.outcome in (Outcome.REFUSED, Outcome.FAILED):
        raise called.to_exception(where)
    messages = {
        Outcome.OUT_OF_MEMORY: "reading it exceeds the memory limit",
        Outcome.TIMEOUT: f"reading it takes more than {seconds:.0f} s",
        Outcome.CRASHED: f"reading it crashes the process ({called.message})",
    }
    if called.outcome in messages:
        raise InputError(messages[called.outcome], where=where)
    raise SystemFailure(called.message, where=where)
