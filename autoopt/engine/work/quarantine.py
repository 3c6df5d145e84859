"""The quarantine as the store remembers it: models that killed their workers in earlier runs."""

from __future__ import annotations

from autoopt.engine.work.environment import library_version
from autoopt.store import EventRecord, Store
from autoopt.workers.quarantine import Deaths

DEATH = "worker death"
"""Kind of the events that record a worker's death."""


def stored_quarantine(store: Store) -> Deaths:
    """Read the recorded deaths, and record further ones. Deaths under other versions of the libraries do not count."""
    libraries = [library_version("onnx"), library_version("onnxruntime")]
    events = [event for event in store.events.all(kind=DEATH) if event.data.get("libraries") == libraries]
    history = [(event.subject, str(event.data.get("message", ""))) for event in events]

    def remember(subject: str, message: str) -> None:
        data = {"message": message, "libraries": libraries}
        store.events.add(EventRecord(kind=DEATH, subject=subject, data=data))

    return Deaths(history, remember)
