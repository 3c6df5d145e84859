"""The store in memory beyond the contracts: its clock and its threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from store_helpers import key, put, start_run
from store_owners import by

from autoopt.store.memory import MemoryStore
from autoopt.store.records import DeathRecord


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
    assert by(store, "a").claims.acquire("pass_run", key("work"), seconds=60.0)
    clock.time += 59.0
    assert by(store, "b").claims.acquire("pass_run", key("work")).state == "held"
    clock.time += 1.0
    assert by(store, "b").claims.acquire("pass_run", key("work"))


def test_times_of_records_are_those_of_the_clock(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, lambda: 7.0)
    run = start_run(store)
    store.deaths.add(DeathRecord("a", "model a", "died", ()))
    store.runs.finish(run.id)
    assert (run.created, store.runs.get(run.id).finished, store.deaths.all()[0].time) == (7.0, 7.0, 7.0)
    assert store.artifacts.all()[0].created == 7.0


def test_a_store_can_be_used_after_closing(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    with store:
        digest = put(store, b"model")
    assert store.artifacts.get(digest).bytes


def test_nothing_is_left_of_another_store_at_the_same_home(tmp_path: Path) -> None:
    put(MemoryStore(tmp_path), b"model")
    assert MemoryStore(tmp_path).artifacts.all() == ()


def test_threads_take_turns(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    owners = [by(store, f"owner {n}") for n in range(200)]
    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda n: owners[n].claims.acquire("pass_run", key(n % 20)), range(200)))
    assert sum(map(bool, claims)) == 20
