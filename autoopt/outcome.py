"""The outcome of a pass run, a measurement or a trial: a value, never an exception."""

from __future__ import annotations

from enum import StrEnum


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
