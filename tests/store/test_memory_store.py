"""The store in memory beyond the contracts: its clock and its files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from store_helpers import key, put, start_run, write_model

from autoopt.errors import SystemFailure
from autoopt.store import EventRecord
from autoopt.store.files.artifacts import ArtifactLost
from autoopt.store.memory import MemoryStore


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_leases_end_on_the_given_clock(tmp_path: Path) -> None:
    clock = Clock()
    store = MemoryStore(tmp_path, clock)
    assert store.clock() == 100.0
    assert store.claims.acquire("pass_run", key("work"), "a", seconds=60.0)
    clock.time += 59.0
    assert store.claims.acquire("pass_run", key("work"), "b").state == "held"
    clock.time += 1.0
    assert store.claims.acquire("pass_run", key("work"), "b")


def test_times_of_records_are_those_of_the_clock(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, lambda: 7.0)
    run = start_run(store)
    store.events.add(EventRecord("note", run.id))
    store.runs.finish(run.id)
    assert (run.created, store.runs.get(run.id).finished, store.events.all()[0].time) == (7.0, 7.0, 7.0)
    assert store.artifacts.all()[0].created == 7.0


def test_a_lost_artifact_is_made_again_on_demand(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "home")
    digest = put(store, b"model")
    folder = store.artifacts.path(digest).parent
    shutil.rmtree(folder)
    with pytest.raises(ArtifactLost, match="missing"):
        store.artifacts.path(digest)
    store.artifacts.restorer = lambda _: write_model(tmp_path / "again", b"model")
    assert store.artifacts.path(digest).read_bytes() == b"model"


def test_other_bytes_do_not_replace_a_lost_artifact(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "home")
    digest = put(store, b"model")
    shutil.rmtree(store.artifacts.path(digest).parent)
    store.artifacts.restorer = lambda _: write_model(tmp_path / "other", b"other")
    with pytest.raises(SystemFailure, match="as expected"):
        store.artifacts.path(digest)


def test_a_store_can_be_used_after_closing(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    with store:
        digest = put(store, b"model")
    assert store.artifacts.get(digest).present


def test_nothing_is_left_of_another_store_at_the_same_home(tmp_path: Path) -> None:
    put(MemoryStore(tmp_path), b"model")
    assert MemoryStore(tmp_path).artifacts.all() == ()
