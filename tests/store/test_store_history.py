"""Releases, worker deaths, the entries of sweeps and the graphs of evaluations, in every kind of store."""

from __future__ import annotations

from store_helpers import evaluation, key, put, release

from autoopt.outcome import Outcome
from autoopt.store import Store, SweepRecord
from autoopt.store.records import DeathRecord, ReleaseRecord


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
