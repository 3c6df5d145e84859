"""Trials, in every kind of store."""

from __future__ import annotations

import dataclasses
import math

import pytest
from sqlalchemy.exc import IntegrityError
from store_helpers import CHAIN, key, put, start_run, trial
from store_owners import by

from autoopt.errors import InputError
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import Store


def test_each_trial_is_claimed_once_in_order_of_numbers(store: Store) -> None:
    run = start_run(store).id
    for n in (2, 1, 0):
        store.trials.add(trial(run, n, chain_id=key("other") if n == 1 else CHAIN))
    claimed = [by(store, owner).trials.claim_next(run, CHAIN) for owner in ("a", "b", "c")]
    assert [t.number for t in claimed if t] == [0, 2]
    assert claimed[2] is None
    assert {t.owner for t in claimed if t} == {"a", "b"}
    other = by(store, "c").trials.claim_next(run, None)
    assert other.number == 1


def test_a_trial_waits_for_its_turn_among_those_of_all_chains(store: Store) -> None:
    run = start_run(store).id
    for n, chain in enumerate([CHAIN, key("other"), CHAIN, key("other")]):
        store.trials.add(dataclasses.replace(trial(run, n, chain_id=chain), parallel=2))
    one, other = by(store, "one").trials, by(store, "other").trials
    first, second = one.claim_next(run, CHAIN), other.claim_next(run, key("other"))
    assert first
    assert second
    assert (first.number, second.number) == (0, 1)
    assert by(store, "third").trials.claim_next(run) is None
    assert other.finish(dataclasses.replace(second, outcome=Outcome.FAILED))
    assert other.claim_next(run, key("other")) is None, "trials 0 and 2 are before it"
    third = by(store, "third").trials.claim_next(run)
    assert third.number == 2


def test_only_the_owner_of_a_trial_finishes_it(store: Store) -> None:
    run = start_run(store).id
    store.trials.add(trial(run, 0))
    assert by(store, "a").trials.claim_next(run, CHAIN)
    made = put(store, b"made")
    end = trial(run, 0, outcome=Outcome.OK, candidate=Candidate(made, {"threads": 2}), violation=-math.inf)
    end = dataclasses.replace(end, metrics={"size": Estimate(1.0, 0.5, 2.0)}, evaluations=(key("e"),), seconds=1.5)
    assert not by(store, "b").trials.finish(end)
    assert by(store, "a").trials.finish(end)
    assert by(store, "a").trials.finish(end), "the same again is no refusal"
    assert not by(store, "b").trials.finish(dataclasses.replace(end, outcome=Outcome.FAILED))
    (stored,) = store.trials.all(run)
    assert stored.finished is not None
    assert stored == dataclasses.replace(end, status="done", owner="a", finished=stored.finished)


def test_trials_of_dead_and_overdue_owners_are_claimed_again(store: Store, dead_owner: str) -> None:
    run = start_run(store).id
    for n in range(3):
        store.trials.add(trial(run, n))
    assert by(store, dead_owner).trials.claim_next(run, CHAIN, seconds=3600.0)
    assert by(store, "overdue").trials.claim_next(run, CHAIN, seconds=-1.0)
    again = [by(store, "me").trials.claim_next(run, CHAIN) for _ in range(4)]
    assert sorted(t.number for t in again if t) == [0, 1, 2]


def test_a_trial_of_another_point_is_done_anew(store: Store) -> None:
    run = start_run(store).id
    first = dataclasses.replace(trial(run, 0), point={"a": {"x": 1}})
    store.trials.add(first)
    assert by(store, "a").trials.claim_next(run, CHAIN)
    assert by(store, "a").trials.finish(dataclasses.replace(first, outcome=Outcome.OK))
    store.trials.add(first)
    assert store.trials.get(run, 0).status == "done"
    store.trials.add(dataclasses.replace(first, point={"a": {"x": 2}}))
    again = store.trials.get(run, 0)
    assert (again.status, again.point, again.outcome) == ("pending", {"a": {"x": 2}}, None)


def test_adding_trials_again_replaces_only_trials_that_nobody_works_on(store: Store, dead_owner: str) -> None:
    run = start_run(store).id
    for n in range(4):
        store.trials.add(trial(run, n))
    store.trials.finish(trial(run, 0, outcome=Outcome.FAILED))
    assert by(store, "alive").trials.claim_next(run, CHAIN)
    assert by(store, dead_owner).trials.claim_next(run, CHAIN)
    store.trials.add(trial(run, 0))
    for n in range(1, 5):
        store.trials.add(trial(run, n, point={"simplify": {"level": 9}}))
    found = store.trials.all(run)
    assert [t.status for t in found] == ["done", "running", "pending", "pending", "pending"]
    assert [t.point["simplify"]["level"] for t in found] == [0, 1, 9, 9, 9]


def test_a_trial_is_found_by_its_number(store: Store) -> None:
    run = start_run(store).id
    store.trials.add(trial(run, 3))
    assert store.trials.get(run, 3).point == {"simplify": {"level": 3}}
    with pytest.raises(InputError, match="has no trial 4"):
        store.trials.get(run, 4)


def test_a_trial_that_was_never_added_can_be_finished(store: Store) -> None:
    run = start_run(store).id
    assert store.trials.finish(trial(run, 1, outcome=Outcome.OK))
    assert store.trials.finish(trial(run, 0, outcome=Outcome.OK))
    assert [t.number for t in store.trials.all(run)] == [0, 1]


def test_a_trial_added_as_running_has_a_lease(store: Store) -> None:
    run = start_run(store).id
    store.trials.add(trial(run, 0, status="running", owner="a"))
    store.trials.add(trial(run, 1))
    added = store.trials.get(run, 0)
    assert added.lease is not None
    assert added.lease > store.clock()
    claimed = by(store, "b").trials.claim_next(run)
    assert claimed.number == 1


def test_trials_of_other_runs_and_chains_are_not_claimed(store: Store) -> None:
    one, two = start_run(store).id, start_run(store).id
    store.trials.add(trial(one, 0))
    assert store.trials.claim_next(two) is None
    assert store.trials.claim_next(one, key("other chain")) is None
    assert store.trials.all(two) == ()


def test_a_trial_belongs_to_a_stored_run(store: Store) -> None:
    with pytest.raises((IntegrityError, LookupError)):
        store.trials.add(trial("nowhere", 0))


def test_an_unusual_violation_comes_back(store: Store) -> None:
    run = start_run(store).id
    store.trials.finish(trial(run, 0, violation=math.nan, outcome=Outcome.OK))
    store.trials.finish(trial(run, 1, violation=math.inf, outcome=Outcome.OK))
    first, second = store.trials.all(run)
    assert math.isnan(first.violation)
    assert second.violation == math.inf
