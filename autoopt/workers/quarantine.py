"""Quarantine: a model that has killed two workers is not given a third.

Only a death that a living pool saw and did not cause counts (`CallResult.died` with the outcome crashed): no time or
memory limit, no cancellation, no end of the pool.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from autoopt.outcome import Outcome
from autoopt.workers.process import CallResult

LIMIT = 2


class Deaths:
    """Who is in quarantine, by digest of the model. Thread-safe.

    history: (digest, message) of earlier deaths, from wherever they are kept.
    remember: told of each new death, to keep it there.
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
        """Whether there was any death."""
        return bool(self._deaths)

    def reason(self, digest: str) -> str | None:
        """Why the model must not be run, in one line; None where it may."""
        with self._lock:
            deaths = self._deaths.get(digest, [])
            if len(deaths) < LIMIT:
                return None
            return f"model {digest[:12]} is in quarantine: it killed its worker {len(deaths)} times, last: {deaths[-1]}"

    def note(self, digest: str, result: CallResult) -> None:
        """Take account of what a call with that model came to."""
        if not (result.died and result.outcome is Outcome.CRASHED):
            return
        with self._lock:
            self._deaths.setdefault(digest, []).append(result.message)
        if self._remember is not None:
            self._remember(digest, result.message)
