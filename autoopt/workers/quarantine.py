"""Quarantine: a model that has killed two workers is not given to a third.

Only a death that a living pool observed and did not cause counts (`CallResult.died` with the outcome crashed), not a
time or memory limit, a cancellation or the end of the pool.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from autoopt.outcome import Outcome
from autoopt.workers.process import CallResult

MAX_DEATHS = 2


class Deaths:
    """Worker deaths by the digest of the model that caused them. Thread-safe.

    Args:
        history: (digest, message) of earlier deaths.
        remember: called with the digest and the message of each new death, to store it.
    """

    def __init__(
        self, history: Iterable[tuple[str, str]] = (), remember: Callable[[str, str], None] | None = None
    ) -> None:
        self._deaths: dict[str, list[str]] = {}
        self._remember = remember
        self._lock = threading.Lock()
        for digest, message in history:
            self._deaths.setdefault(digest, []).append(message)

    @property
    def any(self) -> bool:
        """True after any death."""
        return bool(self._deaths)

    def reason(self, digest: str) -> str | None:
        """Explain in one line why the model must not run; None if it may."""
        with self._lock:
            deaths = self._deaths.get(digest, [])
            if len(deaths) < MAX_DEATHS:
                return None
            return f"model {digest[:12]} is quarantined: it killed its worker {len(deaths)} times, last: {deaths[-1]}"

    def note(self, digest: str, result: CallResult) -> None:
        """Record the result of a call with that model, if it was a death."""
        if not (result.died and result.outcome is Outcome.CRASHED):
            return
        with self._lock:
            self._deaths.setdefault(digest, []).append(result.message)
        if self._remember is not None:
            self._remember(digest, result.message)
