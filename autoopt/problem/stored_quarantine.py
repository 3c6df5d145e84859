"""The quarantine of a store: worker deaths as events, which expire and can be lifted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoopt.errors import InputError
from autoopt.problem.environment import library_version
from autoopt.store import EventRecord, Store
from autoopt.workers.quarantine import MAX_DEATHS, Deaths, Subject

DEATH = "worker death"
"""Kind of the events that record a worker's death."""
LIFTED = "quarantine lifted"
"""Kind of the events after which earlier deaths of a subject no longer count."""
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
    history: list[tuple[str, str]] = []
    if not retry:
        history = [(event.subject, str(event.data.get("message", ""))) for event in _counting_deaths(store)]

    def remember(subject: Subject, message: str) -> None:
        data = {"message": message, "name": subject.name, "libraries": _libraries()}
        store.events.add(EventRecord(kind=DEATH, subject=subject.key, data=data))

    return Deaths(history, remember)


def quarantined(store: Store) -> list[Quarantined]:
    """All work in quarantine."""
    by_subject: dict[str, list[EventRecord]] = {}
    for event in _counting_deaths(store):
        by_subject.setdefault(event.subject, []).append(event)
    items: list[Quarantined] = []
    for key, deaths in by_subject.items():
        if len(deaths) >= MAX_DEATHS:
            last = deaths[-1]
            name = str(last.data.get("name") or Subject.model(key).name)
            expires = deaths[-MAX_DEATHS].time + EXPIRY_SECONDS
            items.append(Quarantined(key, name, len(deaths), str(last.data.get("message", "")), expires))
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
        store.events.add(EventRecord(kind=LIFTED, subject=item.id))
    return lifted


def _counting_deaths(store: Store) -> list[EventRecord]:
    """Deaths under these versions of the libraries that have neither expired nor been lifted, oldest first."""
    deaths = store.events.all(kind=DEATH)
    if not deaths:
        return []
    libraries, earliest = _libraries(), store.clock() - EXPIRY_SECONDS
    lifted = {event.subject: event.time for event in store.events.all(kind=LIFTED)}
    counting: list[EventRecord] = []
    for event in deaths:
        since = max(earliest, lifted.get(event.subject, 0.0))
        if event.time > since and event.data.get("libraries") == libraries:
            counting.append(event)
    return counting


def _libraries() -> list[str]:
    return [library_version("onnx"), library_version("onnxruntime")]
