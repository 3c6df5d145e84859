"""Runs and their chains, in every kind of store."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import IntegrityError
from store_helpers import key, start_run
from store_owners import by

from autoopt.errors import InputError
from autoopt.store import RunRecord, Store


def test_a_run_is_found_by_id_beginning_and_as_the_latest(store: Store) -> None:
    first = start_run(store, id="abc1", plan={"chains": [1, {"a": None}]}, settings={"budget": {"minutes": 1.5}})
    second = start_run(store, id="abd2")
    assert store.runs.get("abc") == first == store.runs.get("abc1")
    assert store.runs.get("latest") == second
    assert (first.plan, first.settings) == ({"chains": [1, {"a": None}]}, {"budget": {"minutes": 1.5}})
    assert [r.id for r in store.runs.all()] == ["abd2", "abc1"]
    with pytest.raises(InputError, match="ambiguous"):
        store.runs.get("ab")
    for unknown in ("xyz", "%", "", "_bc1"):
        with pytest.raises(InputError, match="no run"):
            store.runs.get(unknown)


def test_the_end_of_a_run_is_written_once(store: Store) -> None:
    run = start_run(store)
    assert store.runs.latest_finished(run.identity) is None
    assert not by(store, "somebody else").runs.finish(run.id, "failed", {})
    assert store.runs.finish(run.id, "finished", {"best": None})
    assert store.runs.finish(run.id, "finished", {"best": None}), "the same again is no refusal"
    assert not store.runs.finish(run.id, "cancelled")
    assert not store.runs.finish("nowhere")
    found = store.runs.latest_finished(run.identity)
    assert (found.id, found.result, found.status) == (run.id, {"best": None}, "finished")
    assert found.finished is not None
    assert found.finished >= found.created


def test_runs_are_filtered_by_every_condition(store: Store) -> None:
    first, second = start_run(store), start_run(store, identity="other")
    store.runs.finish(first.id, "failed", {"error": "x"})
    assert [run.id for run in store.runs.all(status="failed")] == [first.id]
    assert [run.id for run in store.runs.all(identity="other")] == [second.id]
    assert store.runs.all(status="failed", identity="other") == ()


def test_an_id_is_used_once(store: Store) -> None:
    run = start_run(store, id="abc")
    assert store.runs.create(run) == run, "the answer to the first commit may be lost"
    with pytest.raises(InputError, match="there is a run 'abc' already"):
        start_run(store, id="abc", identity="other")


def test_a_run_needs_a_stored_model(store: Store) -> None:
    with pytest.raises((IntegrityError, LookupError)):
        store.runs.create(RunRecord("", "net", "identity", key("never stored")))


def test_a_new_run_belongs_to_this_process(store: Store) -> None:
    assert start_run(store).owner == store.owner
    assert start_run(store, owner="somebody").owner == "somebody"


def test_the_newest_finished_run_is_the_answer_to_an_identical_one(store: Store) -> None:
    runs = [start_run(store, identity="same") for _ in range(3)]
    for run in runs[:2]:
        store.runs.finish(run.id)
    newest = store.runs.latest_finished("same")
    assert newest.id == runs[1].id
    assert store.runs.latest_finished("other") is None


def test_the_newest_runs_are_no_parts_of_others(store: Store) -> None:
    first, whole = start_run(store), start_run(store)
    start_run(store, parent=whole.id)
    for limit in (10, 10**30):
        assert [run.id for run in store.runs.newest(limit)] == [whole.id, first.id]
    assert [run.id for run in store.runs.newest(1)] == [whole.id]


def test_a_run_exists_by_the_beginning_of_its_id(store: Store) -> None:
    run = start_run(store, id="ab_c1")
    assert store.runs.exists(run.id)
    assert store.runs.exists("ab_")
    assert not store.runs.exists("abx")
    assert not store.runs.exists("a%")
