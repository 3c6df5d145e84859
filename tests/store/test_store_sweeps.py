"""Sweeps, in every kind of store."""

from __future__ import annotations

import pytest
from store_helpers import start_run

from autoopt.errors import InputError
from autoopt.store import Store, SweepRecord


def test_a_sweep_is_found_with_its_runs(store: Store) -> None:
    sweep = store.sweeps.create(SweepRecord("", "zoo", {"models": 2}))
    run = start_run(store, sweep=sweep.id)
    store.sweeps.finish(sweep.id, "finished", {"better": 1})
    assert store.sweeps.get("latest").result == {"better": 1}
    assert [r.id for r in store.runs.all(sweep=sweep.id)] == [run.id]
    other = store.sweeps.create(SweepRecord("", "other"))
    assert [s.id for s in store.sweeps.all()] == [other.id, sweep.id]
    assert [s.result for s in store.sweeps.all("zoo")] == [{"better": 1}]


def test_a_sweep_is_found_by_a_beginning_of_its_id(store: Store) -> None:
    sweep = store.sweeps.create(SweepRecord("abc123", "zoo"))
    assert store.sweeps.get("abc") == store.sweeps.get("latest") == sweep
    with pytest.raises(InputError, match="no sweep 'x' in the store; 'autoopt nights' lists them"):
        store.sweeps.get("x")


def test_without_sweeps_there_is_no_latest(store: Store) -> None:
    with pytest.raises(InputError, match="no sweep yet"):
        store.sweeps.get("latest")
    assert list(store.sweeps.all()) == []


def test_each_zoo_is_named_once(store: Store) -> None:
    for name in ("b", "a", "b"):
        store.sweeps.create(SweepRecord("", name))
    assert sorted(store.sweeps.names()) == ["a", "b"]


def test_a_finished_sweep_can_be_reopened(store: Store) -> None:
    sweep = store.sweeps.create(SweepRecord("", "zoo"))
    assert (sweep.status, sweep.finished) == ("running", None)
    store.sweeps.finish(sweep.id, "cancelled", {"error": "stopped"})
    ended = store.sweeps.get(sweep.id)
    assert (ended.status, ended.result) == ("cancelled", {"error": "stopped"})
    assert ended.finished is not None
    store.sweeps.finish(sweep.id, "running")
    assert not store.sweeps.get(sweep.id).result


def test_sweeps_are_read_one_by_one(store: Store) -> None:
    for number in range(3):
        store.sweeps.create(SweepRecord(f"s{number}", "zoo"))
    sweeps = store.sweeps.all("zoo")
    assert next(sweeps).id == "s2"
    assert [sweep.id for sweep in sweeps] == ["s1", "s0"]
