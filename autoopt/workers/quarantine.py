"""Quarantine: work that has killed two workers is not given to a third.

Only a death that a living pool observed and did not cause counts (`CallResult.died` with the outcome crashed), not a
time or memory limit, the end of the pool, or a kill from outside.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autoopt.option_names import option
from autoopt.outcome import Outcome
from autoopt.workers.process import CallResult

# One death may be chance, such as a process that was killed from outside.
MAX_DEATHS = 2
"""Deaths of workers from which their subject is not tried again."""
_ON_MODEL = re.compile(" (?:on|of) model ")
SHORT = 12
"""Characters of a key that users see."""


@dataclass(frozen=True)
class Subject:
    """Work that may kill its worker."""

    key: str
    """Digest of the content: the model, and for a pass or a meter its parameters, script and library versions."""
    name: str
    """For people: `model 1f2e3d`, `simplify on model 1f2e3d`."""

    @property
    def work(self) -> str:
        """The name without the model."""
        return _ON_MODEL.split(self.name)[0]

    @staticmethod
    def model(digest: str) -> Subject:
        """The reading of a model."""
        return Subject(digest, f"model {digest[:SHORT]}")


class Deaths:
    """Worker deaths by the subject that caused them. Thread-safe.

    Args:
        history: (key of the subject, message) of earlier deaths.
        remember: called with the subject and the message of each new death, to store it.
    """

    def __init__(
        self, history: Iterable[tuple[str, str]] = (), remember: Callable[[Subject, str], None] | None = None
    ) -> None:
        self._deaths: dict[str, list[str]] = {}
        self._remember = remember
        self._lock = threading.Lock()
        for key, message in history:
            self._deaths.setdefault(key, []).append(message)

    @property
    def any(self) -> bool:
        """True after any death."""
        return bool(self._deaths)

    def reason(self, subject: Subject) -> str | None:
        """Explain in one line why the work must not run; None if it may."""
        with self._lock:
            deaths = self._deaths.get(subject.key, [])
        if len(deaths) < MAX_DEATHS:
            return None
        return (
            f"{subject.name} is quarantined: it killed its worker {len(deaths)} times, last: {deaths[-1]}; try it"
            f" again with {option('again', 'failed')}, or 'autoopt store verify --lift {subject.key[:SHORT]}'"
        )

    def note(self, subject: Subject, result: CallResult) -> None:
        """Record the result of a call, if it was a death that the work itself caused."""
        if not result.died or result.transient or result.outcome is not Outcome.CRASHED:
            return
        with self._lock:
            self._deaths.setdefault(subject.key, []).append(result.message)
        if self._remember is not None:
            self._remember(subject, result.message)
