"""The outcome of a pass run, a measurement or a trial, and the cause of a failure: values, never exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

_FULL_DISK: Final = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")
"""Texts of the system's errors for a full disk, as native libraries pass them on."""
_NO_FILES: Final = "Too many open files"
"""Text of the system's error, as native libraries pass it on."""


class Outcome(StrEnum):
    """Outcome of work done in a worker."""

    OK = "ok"
    """Success; for a pass run: the candidate changed."""
    UNCHANGED = "unchanged"
    """The pass had nothing to do; the chain continues with its input."""
    REFUSED = "refused"
    """The pass or the runtime does not support this model or these parameters."""
    RETRY = "retry"
    """The pass hands back adjusted parameters; only seen inside a pass run's attempts."""
    FAILED = "failed"
    """An exception, or a result that the checker or the equivalence check rejects."""
    CRASHED = "crashed"
    """The worker process died (signal or exit code)."""
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"

    @property
    def good(self) -> bool:
        """True if the chain may continue."""
        return self in (Outcome.OK, Outcome.UNCHANGED)

    @property
    def retryable(self) -> bool:
        """True for failures that a retry of the run executes again; a plain second run reuses them."""
        return self in (Outcome.FAILED, Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY)


class Cause(StrEnum):
    """The cause of a failure. What lies outside the work is tried again alone, and by later runs."""

    WORK = "the work itself"
    MACHINE = "other work on the machine"
    """Something killed the worker, or kept the machine busy until the time limit."""
    SET_UP = "the set-up of the machine"
    """A missing module or permission, no connection, too many open files, too little memory for the attempt."""
    FULL_DISK = "a full disk"
    """Nothing is stored of the work: it says nothing about the model."""


def cause_of(error: BaseException, outcome: Outcome) -> Cause:
    """The cause of a failure that an exception with this outcome reports, perhaps by its own cause.

    A refusal is about the work, unless the exception says otherwise in its attribute `cause`.
    """
    if any(reports_full_disk(str(each)) for each in chain_of(error)):
        return Cause.FULL_DISK
    if outcome is Outcome.REFUSED:
        return getattr(error, "cause", Cause.WORK)
    # What fails in the handling of another error may be about the work; what is raised from one is about that.
    if outcome is Outcome.FAILED and any(map(_is_set_up, chain_of(error, explicit=True))):
        return Cause.SET_UP
    return Cause.WORK


def reports_full_disk(text: str) -> bool:
    """True if an error or the output of a worker has the system's words for a full disk."""
    return any(words in text for words in _FULL_DISK)


def chain_of(error: BaseException | None, *, explicit: bool = False) -> Iterator[BaseException]:
    """An exception and those before it, as a traceback shows them; `explicit` ones say `raise ... from`."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        yield error
        seen.append(error)
        error = error.__cause__ or (None if explicit or error.__suppress_context__ else error.__context__)


def _is_set_up(error: BaseException) -> bool:
    return isinstance(error, ImportError | PermissionError | ConnectionError) or _NO_FILES in str(error)
