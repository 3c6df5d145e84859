"""Knowledge that was imported into a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import mlp, write
from knowledge_cases import KNOWLEDGE, LESSON

from autoopt.engine.planning.imported_knowledge import (
    EVENT,
    add_knowledge,
    imported_knowledge,
    imported_lessons,
    lesson_id,
    remove_knowledge,
)
from autoopt.results.knowledge import FORMAT, Knowledge
from autoopt.store import EventRecord, RunRecord
from autoopt.store.memory import MemoryStore


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path)


def knowledge(*ids: str) -> Knowledge:
    """A file with one lesson for each id."""
    return Knowledge.of(tuple(LESSON.model_copy(update={"id": one}) for one in ids), "1.0")


def files(store: MemoryStore) -> list[str]:
    return [item.file for item in imported_knowledge(store)]


def test_the_newest_file_comes_first(store: MemoryStore) -> None:
    assert files(store) == []
    for name in ("a", "b", "c"):
        assert add_knowledge(store, knowledge(12 * name), f"{name}.json")
    assert files(store) == ["c.json", "b.json", "a.json"]
    assert imported_knowledge(store)[-1].knowledge == knowledge(12 * "a")


def test_the_same_knowledge_is_imported_once_whatever_its_file_is_called(store: MemoryStore) -> None:
    assert add_knowledge(store, KNOWLEDGE, "one.json")
    assert not add_knowledge(store, KNOWLEDGE, "two.json")
    assert files(store) == ["one.json"]


def test_removed_knowledge_is_gone_until_it_is_imported_again(store: MemoryStore) -> None:
    add_knowledge(store, knowledge(12 * "a"), "a.json")
    add_knowledge(store, KNOWLEDGE, "one.json")
    remove_knowledge(store, imported_knowledge(store)[0])
    assert files(store) == ["a.json"]
    assert [lesson.id for lesson in imported_lessons(store)] == [12 * "a"]
    assert add_knowledge(store, KNOWLEDGE, "again.json")
    assert set(files(store)) == {"a.json", "again.json"}


def test_what_only_newer_versions_can_read_is_left_out(store: MemoryStore) -> None:
    add_knowledge(store, KNOWLEDGE, "one.json")
    newer = {**KNOWLEDGE.document, "knowledge": FORMAT + 1}
    store.events.add(EventRecord(EVENT, subject="f" * 64, data={"file": "newer.json", "knowledge": newer}))
    assert files(store) == ["one.json"]


def test_lessons_are_told_once_and_none_of_the_stores_own_runs(store: MemoryStore, tmp_path: Path) -> None:
    source = store.artifacts.put(write(mlp(), tmp_path / "source").parent)
    run = store.runs.create(RunRecord(id="", name="net", identity="i", model=source))
    own = lesson_id(run.id)
    assert list(imported_lessons(store)) == []
    add_knowledge(store, knowledge(12 * "a", own), "one.json")
    add_knowledge(store, knowledge(12 * "a", 12 * "b"), "two.json")
    assert sorted(lesson.id for lesson in imported_lessons(store)) == [12 * "a", 12 * "b"]


def test_the_id_of_a_lesson_does_not_show_the_run() -> None:
    first, second = lesson_id("0123456789ab"), lesson_id("0123456789ac")
    assert first != second
    assert len(first) == 12
    assert "0123456789ab" not in first
