"""Claims, in every kind of store."""

from __future__ import annotations

import dataclasses

import pytest
from store_helpers import evaluation, key, pass_run, put, start_run, trial
from store_owners import by

from autoopt.errors import InputError
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import Store, SweepRecord
from autoopt.store.records import ClaimKind


def test_one_owner_holds_a_claim(store: Store) -> None:
    work = key("work")
    assert by(store, "a").claims.acquire("pass_run", work)
    assert by(store, "a").claims.acquire("pass_run", work), "one's own is renewed"
    held = by(store, "b").claims.acquire("pass_run", work)
    assert not held
    assert (held.state, held.owner) == ("held", "a")
    assert store.results.pass_run(work) is None


def test_an_owner_that_lost_its_lease_cannot_finish(store: Store) -> None:
    record = pass_run(put(store, b"source"), put(store, b"made"))
    assert by(store, "slow").claims.acquire("pass_run", record.key, seconds=-1.0)
    assert by(store, "quick").claims.acquire("pass_run", record.key)
    assert not by(store, "slow").claims.renew("pass_run", record.key)
    assert not by(store, "slow").results.finish_pass_run(record)
    assert store.results.pass_run(record.key) is None
    assert by(store, "quick").results.finish_pass_run(record)
    assert by(store, "slow").claims.acquire("pass_run", record.key).state == "done"


def test_an_overdue_owner_may_finish_unless_another_took_over(store: Store) -> None:
    record = evaluation(put(store, b"model"))
    assert by(store, "slow").claims.acquire("evaluation", record.key, seconds=-1.0)
    assert by(store, "slow").results.finish_evaluation(record)


def test_only_the_owner_renews_or_releases_a_claim(store: Store) -> None:
    work = key("work")
    by(store, "a").claims.acquire("evaluation", work, seconds=-1.0)
    assert by(store, "a").claims.renew("evaluation", work, seconds=60.0)
    assert by(store, "b").claims.acquire("evaluation", work).state == "held"
    by(store, "b").claims.release("evaluation", work)
    assert by(store, "b").claims.acquire("evaluation", work).state == "held", "not b's to release"
    by(store, "a").claims.release("evaluation", work)
    assert by(store, "b").claims.acquire("evaluation", work)


def test_a_sweep_is_claimed_like_a_run_and_ends_only_by_its_owner(store: Store) -> None:
    sweep = store.sweeps.create(SweepRecord("", "z")).id
    first, second = by(store, "a"), by(store, "b")
    assert first.claims.acquire("sweep", sweep)
    assert second.claims.acquire("sweep", sweep).owner == "a"
    second.sweeps.finish(sweep, "cancelled")
    assert store.sweeps.get(sweep).status == "running"
    first.sweeps.finish(sweep, "cancelled")
    assert first.claims.acquire("sweep", sweep).state == "done"
    assert second.claims.acquire("sweep", sweep, redo=True)
    assert store.sweeps.get(sweep).owner == "b"
    assert not first.claims.renew("sweep", sweep)


def test_the_claim_of_a_dead_process_is_free_at_once(store: Store, dead_owner: str) -> None:
    assert by(store, f"{dead_owner}/thread 1").claims.acquire("pass_run", key("work"), seconds=3600.0)
    assert store.claims.acquire("pass_run", key("work"))


def test_one_owner_redoes_a_retryable_result(store: Store) -> None:
    source = put(store, b"source")
    failed = pass_run(source, None, outcome=Outcome.CRASHED)
    by(store, "a").results.finish_pass_run(failed)
    assert by(store, "b").claims.acquire("pass_run", failed.key).state == "done"
    assert by(store, "b").claims.acquire("pass_run", failed.key, redo=True)
    assert by(store, "c").claims.acquire("pass_run", failed.key, redo=True).state == "held"
    better = dataclasses.replace(failed, outcome=Outcome.UNCHANGED, output=Candidate(source))
    assert not by(store, "c").results.finish_pass_run(better)
    assert by(store, "b").results.finish_pass_run(better)
    again = by(store, "c").claims.acquire("pass_run", failed.key, redo=True)
    assert again.state == "done", "good ones are not done again"


def test_an_abandoned_run_can_be_claimed_and_an_ended_one_reopened(store: Store, dead_owner: str) -> None:
    run = start_run(store, owner=dead_owner)
    assert store.claims.acquire("run", run.id)
    assert store.runs.finish(run.id, "failed")
    assert by(store, "b").claims.acquire("run", run.id).state == "done"
    assert by(store, "b").claims.acquire("run", run.id, redo=True)
    assert store.runs.get(run.id).status == "running"


@pytest.mark.parametrize("kind", ["run", "trial"])
def test_a_run_or_trial_must_exist_to_be_claimed(store: Store, kind: ClaimKind) -> None:
    with pytest.raises(InputError, match=f"there is no {kind} 'nowhere/1' to claim"):
        store.claims.acquire(kind, "nowhere/1")


def test_a_released_trial_is_pending_again(store: Store) -> None:
    run = start_run(store).id
    store.trials.add(trial(run, 0))
    claimed = by(store, "a").trials.claim_next(run)
    assert by(store, "a").claims.renew("trial", claimed.claim)
    by(store, "a").claims.release("trial", claimed.claim)
    assert (store.trials.get(run, 0).status, store.trials.get(run, 0).owner) == ("pending", None)


def test_a_failed_trial_is_redone_on_request(store: Store) -> None:
    run = start_run(store).id
    by(store, "a").trials.finish(trial(run, 0, outcome=Outcome.CRASHED))
    by(store, "a").trials.finish(trial(run, 1, outcome=Outcome.REFUSED))
    assert by(store, "b").claims.acquire("trial", f"{run}/0").state == "done"
    assert by(store, "b").claims.acquire("trial", f"{run}/0", redo=True)
    assert store.trials.get(run, 0).status == "running"
    assert by(store, "b").claims.acquire("trial", f"{run}/1", redo=True).state == "done", "not retryable"


def test_claims_of_different_kinds_do_not_meet(store: Store) -> None:
    assert by(store, "a").claims.acquire("pass_run", key("work"))
    assert by(store, "b").claims.acquire("evaluation", key("work"))
    assert not by(store, "a").claims.renew("evaluation", key("work"))
    assert not by(store, "a").claims.renew("pass_run", key("unknown"))


def test_the_default_owner_is_this_process(store: Store) -> None:
    claim = store.claims.acquire("pass_run", key("work"))
    assert (claim.state, claim.owner) == ("mine", store.owner)
    assert store.claims.renew("pass_run", key("work"))


def test_a_release_has_one_owner_until_it_is_given_back_or_the_lease_ends(store: Store) -> None:
    assert by(store, "a").claims.acquire("release", "zoo/cnn")
    assert not by(store, "b").claims.acquire("release", "zoo/cnn")
    assert by(store, "b").claims.acquire("release", "zoo/rnn"), "models do not wait for each other"
    by(store, "a").claims.release("release", "zoo/cnn")
    assert by(store, "b").claims.acquire("release", "zoo/cnn", seconds=-1.0)
    assert by(store, "a").claims.acquire("release", "zoo/cnn")
