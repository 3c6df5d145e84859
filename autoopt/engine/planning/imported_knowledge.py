"""Knowledge that was imported: an event in the store for each file, and one for each that was removed again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autoopt.model.candidate import digest_json
from autoopt.store import EventRecord, Store

if TYPE_CHECKING:
    from autoopt.results.knowledge import Knowledge, Lesson

EVENT: Final = "knowledge"
"""Kind of the events; their subject is the digest of the file."""
_REMOVED: Final = "removed"


@dataclass(frozen=True)
class ImportedKnowledge:
    """A file of knowledge in the store."""

    file: str
    """Name of the file."""
    knowledge: Knowledge


def add_knowledge(store: Store, knowledge: Knowledge, file: str) -> bool:
    """Import knowledge; False if the store has it already."""
    if knowledge.digest in {item.knowledge.digest for item in imported_knowledge(store)}:
        return False
    data = {"file": file, "knowledge": knowledge.document}
    store.events.add(EventRecord(kind=EVENT, subject=knowledge.digest, data=data))
    return True


def remove_knowledge(store: Store, item: ImportedKnowledge) -> None:
    """Remove imported knowledge."""
    store.events.add(EventRecord(kind=EVENT, subject=item.knowledge.digest, data={_REMOVED: True}))


def imported_digests(store: Store) -> list[str]:
    """The digests of all files of knowledge that were imported and not removed."""
    return [event.subject for event in _imports(store)]


def imported_knowledge(store: Store) -> list[ImportedKnowledge]:
    """All knowledge that was imported and not removed, newest first; without what only newer versions can read."""
    imports = _imports(store)
    if not imports:
        return []
    from pydantic import ValidationError

    from autoopt.results.knowledge import Knowledge

    items: list[ImportedKnowledge] = []
    for event in reversed(imports):
        with suppress(ValidationError):
            items.append(ImportedKnowledge(str(event.data["file"]), Knowledge.model_validate(event.data["knowledge"])))
    return items


def _imports(store: Store) -> list[EventRecord]:
    """The latest event of each file of knowledge that was not removed."""
    latest = {event.subject: event for event in store.events.all(kind=EVENT)}
    return [event for event in latest.values() if not event.data.get(_REMOVED)]


def imported_lessons(store: Store) -> Iterator[Lesson]:
    """The lessons of imported knowledge, each once; none that come from runs of this store."""
    items = imported_knowledge(store)
    if not items:
        return
    ids = {lesson_id(run.id) for run in store.runs.all()}
    for item in items:
        for lesson in item.knowledge.lessons:
            if lesson.id not in ids:
                ids.add(lesson.id)
                yield lesson


def lesson_id(run: str) -> str:
    """The id of the lesson of a run."""
    return digest_json({"run": run})[:12]
