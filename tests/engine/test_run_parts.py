"""Runs of several parts: the finished ones that answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.engine.run.parts import is_outdated
from autoopt.store import RunRecord
from autoopt.store.memory import MemoryStore


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    times = iter(range(1, 1000))
    store = MemoryStore(tmp_path / "home", clock=lambda: float(next(times)))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.onnx").write_bytes(b"source")
    store.artifacts.put(tmp_path / "model")
    return store


def create(store: MemoryStore, **fields: str) -> RunRecord:
    return store.runs.create(RunRecord(id="", name="t", identity="i", model=store.artifacts.all()[0].digest, **fields))


def finish(store: MemoryStore, run: RunRecord, **result: object) -> RunRecord:
    store.runs.finish(run.id, "finished", {"run": run.id, **result})
    return store.runs.get(run.id)


def test_a_run_is_outdated_if_a_part_finished_again_after_it(store: MemoryStore) -> None:
    whole = create(store)
    part = create(store, parent=whole.id)
    finish(store, part)
    joined = finish(store, whole, targets=[{"name": "one", "run": part.id}])
    assert not is_outdated(joined, store)
    assert store.claims.acquire("run", part.id, redo=True)
    finish(store, part)
    assert is_outdated(joined, store)


def test_another_run_does_not_make_it_outdated(store: MemoryStore) -> None:
    whole = create(store)
    joined = finish(store, whole, targets=[{"name": "one", "run": "another"}])
    finish(store, create(store))
    assert not is_outdated(joined, store)


def test_a_run_on_one_target_is_never_outdated(store: MemoryStore) -> None:
    run = create(store)
    assert not is_outdated(finish(store, run), store)
