"""Deleting runs, in every kind of store."""

from __future__ import annotations

import pytest
from store_helpers import pass_run, put, start_run, trial

from autoopt.errors import InputError
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import Store


def test_deleting_a_run_deletes_its_parts(store: Store) -> None:
    whole = start_run(store)
    parts = [start_run(store, parent=whole.id), start_run(store, parent=whole.id)]
    assert store.runs.get("latest").id == whole.id
    assert [r.id for r in store.runs.all(parent=whole.id)] == [r.id for r in reversed(parts)]
    assert store.runs.get(parts[0].id).parent == whole.id
    for run in (*parts, whole):
        store.runs.finish(run.id)
    store.runs.delete(whole.id)
    assert store.runs.all() == ()


def test_deleting_a_run_keeps_the_results_that_others_use(store: Store) -> None:
    old, new = start_run(store), start_run(store)
    made = put(store, b"made")
    shared, own = pass_run(old.model, made, run=old.id), pass_run(old.model, made, "other", run=old.id)
    store.results.finish_pass_runs([shared, own])
    for run, keys in ((old, (shared.key, own.key)), (new, (shared.key,))):
        store.trials.finish(trial(run.id, 0, outcome=Outcome.OK, candidate=Candidate(made), pass_runs=keys))
    with pytest.raises(InputError, match="still running"):
        store.runs.delete(old.id)
    store.runs.finish(old.id)
    store.runs.delete(old.id)
    assert [r.id for r in store.runs.all()] == [new.id]
    assert store.results.pass_run(shared.key) is not None
    assert store.results.pass_run(own.key) is None
    assert store.trials.all(old.id) == ()
