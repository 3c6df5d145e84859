"""Runs and their chains, in every kind of store."""

from __future__ import annotations

import pytest
from store_helpers import key, start_run

from autoopt.errors import InputError
from autoopt.store import ChainRecord, RunRecord, Store


def test_a_run_is_found_by_id_beginning_and_as_the_latest(store: Store) -> None:
    first = start_run(store, id="abc1", plan={"chains": 2}, settings={"seed": 0})
    second = start_run(store, id="abd2")
    assert store.runs.get("abc") == first == store.runs.get("abc1")
    assert store.runs.get("latest") == second
    assert [r.id for r in store.runs.all()] == ["abd2", "abc1"]
    with pytest.raises(InputError, match="ambiguous"):
        store.runs.get("ab")
    for unknown in ("xyz", "%", "", "_bc1"):
        with pytest.raises(InputError, match="no run"):
            store.runs.get(unknown)


def test_the_end_of_a_run_is_written_once(store: Store) -> None:
    run = start_run(store)
    assert store.runs.latest_finished(run.identity) is None
    assert not store.runs.finish(run.id, "failed", {}, owner="somebody else")
    assert store.runs.finish(run.id, "finished", {"best": None})
    assert store.runs.finish(run.id, "finished", {"best": None}), "the same again is no refusal"
    assert not store.runs.finish(run.id, "cancelled")
    found = store.runs.latest_finished(run.identity)
    assert found is not None
    assert (found.id, found.result, found.status) == (run.id, {"best": None}, "finished")
    assert found.finished is not None
    assert found.finished >= found.created


def test_chains_keep_their_order_and_exact_sizes(store: Store) -> None:
    source = start_run(store).model
    chains = [ChainRecord(key(i), f"a -> b{i}", ({"id": "a"}, {"id": f"b{i}"}), 10**30 + i) for i in range(3)]
    run = RunRecord("", "net", key("x"), source, plan={"same": "plan"})
    one, two = store.runs.create(run, chains), store.runs.create(run, chains[:1])
    assert store.runs.chains(one.id) == tuple(chains)
    assert store.runs.chains(two.id) == tuple(chains[:1])
