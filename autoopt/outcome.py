"""What became of a pass run, a measurement or a trial: a value, never an exception."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """One outcome of work done in a worker."""

    OK = "ok"
    """Done; for a pass run: the candidate changed."""
    UNCHANGED = "unchanged"
    """A pass that had nothing to do; the chain goes on with its input."""
    REFUSED = "refused"
    """The pass or the runtime says that it cannot take this model or these parameters."""
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
        """Whether the chain may go on."""
        return self in (Outcome.OK, Outcome.UNCHANGED)

    @property
    def retryable(self) -> bool:
        """True for failures that a retry of the run executes again; a plain second run reuses them."""
        return self in (Outcome.FAILED, Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY)
