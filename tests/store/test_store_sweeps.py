"""Sweeps, in every kind of store."""

from __future__ import annotations

from store_helpers import start_run

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
