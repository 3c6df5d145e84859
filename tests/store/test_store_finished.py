"""The finished trials of a run, as reports read them."""

from __future__ import annotations

from store_helpers import CHAIN, key, start_run, trial

from autoopt.outcome import Outcome
from autoopt.store import Store
from autoopt.store.finished import finished_trials


def test_only_finished_trials_are_returned_by_number(store: Store) -> None:
    run = start_run(store).id
    for number in range(3):
        store.trials.add(trial(run, number))
    for number in (2, 0):
        store.trials.finish(trial(run, number, outcome=Outcome.OK))
    assert [finished.number for finished in finished_trials(store, run)] == [0, 2]


def test_the_trials_of_a_chain_can_be_selected(store: Store) -> None:
    run = start_run(store)
    store.trials.finish(trial(run.id, 0, outcome=Outcome.OK, chain="a -> b"))
    store.trials.finish(trial(run.id, 1, outcome=Outcome.OK, chain_id=key("other")))
    [only] = finished_trials(store, run.id, CHAIN)
    assert (only.number, only.chain) == (0, "a -> b")
