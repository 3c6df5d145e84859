"""Sweeps, releases and deaths of workers in the store."""

from __future__ import annotations

import pytest
from store_helpers import evaluation, key, put, release, start_run

from autoopt.errors import InputError
from autoopt.outcome import Outcome
from autoopt.store import Store, SweepRecord
from autoopt.store.records import DeathRecord, ReleaseRecord


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


def test_releases_come_back_by_zoo_oldest_first(store: Store) -> None:
    for zoo, model, back in (("ab_", "x", False), ("abc", "x", False), ("abc", "y", True)):
        store.releases.add(ReleaseRecord(release(zoo, model), None, rolled_back=back, by="ann@forge"))
    steps = [(step.release, step.rolled_back) for step in store.releases.all("abc")]
    assert steps == [(release("abc", "x"), False), (release("abc", "y"), True)]
    first, second, third = store.releases.all()
    assert first.release == release("ab_", "x")
    assert 0 < first.time <= second.time <= third.time


def test_deaths_are_removed_by_subject(store: Store) -> None:
    for subject, message in (("abc", "one"), ("def", "two\nlines"), ("abc", "three")):
        store.deaths.add(DeathRecord(subject, f"model {subject}", message, ("1.20", "1.23")))
    assert [death.message for death in store.deaths.all()] == ["one", "two lines", "three"]
    assert store.deaths.all()[0].libraries == ("1.20", "1.23")
    store.deaths.remove("abc")
    assert [death.subject for death in store.deaths.all()] == ["def"]


def test_the_last_entry_of_a_model_stays_with_its_sweep(store: Store) -> None:
    first = store.sweeps.create(SweepRecord("", "zoo")).id
    second = store.sweeps.create(SweepRecord("", "zoo")).id
    for entry in ({"seconds": 1.0}, {"seconds": 2.0}):
        store.sweeps.add_entry(first, "a/b", entry)
    assert store.sweeps.entries(first) == {"a/b": {"seconds": 2.0}}
    assert store.sweeps.entries(second) == {}


def test_a_good_evaluation_stands_for_its_graph(store: Store) -> None:
    artifact = put(store, b"model")
    for name, outcome in (("one", Outcome.FAILED), ("two", Outcome.OK), ("three", Outcome.FAILED)):
        record = evaluation(artifact, key=key(name), outcome=outcome, graph="g" * 64)
        assert store.results.finish_evaluation(record)
    found = store.results.evaluation_of_graph("g" * 64)
    assert found is not None
    assert found.key == key("two")
    assert store.results.evaluation_of_graph("h" * 64) is None
