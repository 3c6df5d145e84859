"""The quarantine outlives the process, but not a change of the libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.engine.work import quarantine
from autoopt.engine.work.quarantine import DEATH, stored_quarantine
from autoopt.outcome import Outcome
from autoopt.store.memory.store import MemoryStore
from autoopt.workers import CallResult

DIED = CallResult(Outcome.CRASHED, message="the worker died: SIGSEGV", died=True)


def test_deaths_are_remembered_in_the_store(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    for _ in range(2):
        stored_quarantine(store).note("digest", DIED)
    reason = stored_quarantine(store).reason("digest")
    assert reason is not None
    assert "SIGSEGV" in reason
    assert stored_quarantine(store).reason("another") is None


def test_what_the_caller_ended_is_no_death(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    stored_quarantine(store).note("digest", CallResult(Outcome.TIMEOUT, message="more than 1 s"))
    assert store.events.all(kind=DEATH) == ()


def test_deaths_under_other_versions_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(tmp_path)
    monkeypatch.setattr(quarantine, "library_version", lambda name: "0.1")
    for _ in range(2):
        stored_quarantine(store).note("digest", DIED)
    monkeypatch.undo()
    assert stored_quarantine(store).reason("digest") is None
