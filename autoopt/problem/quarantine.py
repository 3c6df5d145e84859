"""Quarantine: work that has killed two workers is not given to a third.

Only a death that a living pool observed and did not cause counts (`CallResult.died` with the outcome crashed), not a
time or memory limit, the end of the pool, or a kill from outside. Deaths are stored; they expire and can be lifted.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from autoopt.distributions import library_version
from autoopt.errors import InputError
from autoopt.option_names import option
from autoopt.outcome import Cause, Outcome
from autoopt.store import Store
from autoopt.store.records import DeathRecord
from autoopt.workers.process import CallResult

# One death may be chance, such as a process that was killed from outside.
MAX_DEATHS = 2
"""Deaths of workers from which their subject is not tried again."""
EXPIRY_SECONDS = 30 * 86400.0
"""Deaths before this time no longer count."""
SHORT = 12
"""Characters of a key that users see."""


@dataclass(frozen=True)
class Subject:
    """Work that may kill its worker."""

    key: str
    """Digest of the content: the model, and for a pass or a meter its parameters, script and library versions."""
    name: str
    """For people: `model 1f2e3d`, `simplify on model 1f2e3d`."""

    @staticmethod
    def model(digest: str) -> Subject:
        """The reading of a model."""
        return Subject(digest, f"model {digest[:SHORT]}")


class Quarantine:
    """Worker deaths by the subject that caused them, those of earlier runs in this store included. Thread-safe.

    With `retry`, deaths of earlier runs do not count.
    """

    def __init__(self, store: Store, *, retry: bool = False) -> None:
        self._store = store
        self._deaths: dict[str, list[str]] = {}
        self._lock = threading.Lock()
        for death in () if retry else _counting_deaths(store):
            self._deaths.setdefault(death.subject, []).append(death.message)

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
        if not result.died or result.cause is not Cause.WORK or result.outcome is not Outcome.CRASHED:
            return
        with self._lock:
            self._deaths.setdefault(subject.key, []).append(result.message)
        self._store.deaths.add(DeathRecord(subject.key, subject.name, result.message, _libraries()))


@dataclass(frozen=True)
class Quarantined:
    """Work that is not run because it killed its workers."""

    id: str
    """Key of the subject."""
    name: str
    deaths: int
    message: str
    """The end of the last worker."""
    expires: float
    """Seconds since 1970."""


def quarantined(store: Store) -> list[Quarantined]:
    """All work in quarantine."""
    by_subject: dict[str, list[DeathRecord]] = {}
    for death in _counting_deaths(store):
        by_subject.setdefault(death.subject, []).append(death)
    items: list[Quarantined] = []
    for key, deaths in by_subject.items():
        if len(deaths) >= MAX_DEATHS:
            expires = deaths[-MAX_DEATHS].time + EXPIRY_SECONDS
            items.append(Quarantined(key, deaths[-1].name, len(deaths), deaths[-1].message, expires))
    return items


def lift(store: Store, names: Sequence[str]) -> list[Quarantined]:
    """Lift the quarantine of the work with these ids, or beginnings of ids; of all work without names.

    Raises:
        InputError: A name matches nothing.
    """
    items = quarantined(store)
    for name in names:
        if not name or not any(item.id.startswith(name) for item in items):
            raise InputError(f"{name!r} is not in quarantine", remedy="'autoopt store verify' shows what is")
    lifted = [item for item in items if not names or item.id.startswith(tuple(names))]
    for item in lifted:
        store.deaths.remove(item.id)
    return lifted


def _counting_deaths(store: Store) -> list[DeathRecord]:
    """Deaths under these versions of the libraries that have not expired, oldest first."""
    deaths = store.deaths.all()
    if not deaths:
        return []
    libraries, earliest = _libraries(), store.clock() - EXPIRY_SECONDS
    return [death for death in deaths if death.time > earliest and death.libraries == libraries]


def _libraries() -> tuple[str, ...]:
    return library_version("onnx"), library_version("onnxruntime")
