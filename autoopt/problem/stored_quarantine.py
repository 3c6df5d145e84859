"""The quarantine of a store: worker deaths, which expire and can be lifted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoopt.distributions import library_version
from autoopt.errors import InputError
from autoopt.store import Store
from autoopt.store.records import DeathRecord
from autoopt.workers.quarantine import MAX_DEATHS, Deaths, Subject

EXPIRY_SECONDS = 30 * 86400.0
"""Deaths before this time no longer count."""


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


def stored_quarantine(store: Store, *, retry: bool = False) -> Deaths:
    """Read which work killed its workers, in earlier runs too, and record further deaths.

    With `retry`, deaths of earlier runs do not count.
    """
    history = [] if retry else [(death.subject, death.message) for death in _counting_deaths(store)]

    def remember(subject: Subject, message: str) -> None:
        store.deaths.add(DeathRecord(subject.key, subject.name, message, _libraries()))

    return Deaths(history, remember)


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
