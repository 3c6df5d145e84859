"""Claims, in every kind of store."""

from __future__ import annotations

import dataclasses

import pytest
from store_helpers import evaluation, key, pass_run, put, start_run, trial

from autoopt.errors import InputError
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import Store
from autoopt.store.records import ClaimKind


def test_one_owner_holds_a_claim(store: Store) -> None:
    work = key("work")
    assert store.claims.acquire("pass_run", work, "a")
    assert store.claims.acquire("pass_run", work, "a"), "one's own is renewed"
    held = store.claims.acquire("pass_run", work, "b")
    assert not held
    assert (held.state, held.owner) == ("held", "a")
    assert store.results.pass_run(work) is None


def test_an_owner_that_lost_its_lease_cannot_finish(store: Store) -> None:
    record = pass_run(put(store, b"source"), put(store, b"made"))
    assert store.claims.acquire("pass_run", record.key, "slow", seconds=-1.0)
    assert store.claims.acquire("pass_run", record.key, "quick")
    assert not store.claims.renew("pass_run", record.key, "slow")
    assert not store.results.finish_pass_run(record, "slow")
    assert store.results.pass_run(record.key) is None
    assert store.results.finish_pass_run(record, "quick")
    assert store.claims.acquire("pass_run", record.key, "slow").state == "done"


def test_an_overdue_owner_may_finish_unless_another_took_over(store: Store) -> None:
    record = evaluation(put(store, b"model"))
    assert store.claims.acquire("evaluation", record.key, "slow", seconds=-1.0)
    assert store.results.finish_evaluation(record, "slow")


def test_only_the_owner_renews_or_releases_a_claim(store: Store) -> None:
    work = key("work")
    store.claims.acquire("evaluation", work, "a", seconds=-1.0)
    assert store.claims.renew("evaluation", work, "a", seconds=60.0)
    assert store.claims.acquire("evaluation", work, "b").state == "held"
    store.claims.release("evaluation", work, "b")
    assert store.claims.acquire("evaluation", work, "b").state == "held", "not b's to release"
    store.claims.release("evaluation", work, "a")
    assert store.claims.acquire("evaluation", work, "b")


def test_the_claim_of_a_dead_process_is_free_at_once(store: Store, dead_owner: str) -> None:
    assert store.claims.acquire("pass_run", key("work"), f"{dead_owner}/thread 1", seconds=3600.0)
    assert store.claims.acquire("pass_run", key("work"))


def test_one_owner_redoes_a_retryable_result(store: Store) -> None:
    source = put(store, b"source")
    failed = pass_run(source, None, outcome=Outcome.CRASHED)
    store.results.finish_pass_run(failed, "a")
    assert store.claims.acquire("pass_run", failed.key, "b").state == "done"
    assert store.claims.acquire("pass_run", failed.key, "b", redo=True)
    assert store.claims.acquire("pass_run", failed.key, "c", redo=True).state == "held"
    better = dataclasses.replace(failed, outcome=Outcome.UNCHANGED, output=Candidate(source))
    assert not store.results.finish_pass_run(better, "c")
    assert store.results.finish_pass_run(better, "b")
    assert store.claims.acquire("pass_run", failed.key, "c", redo=True).state == "done", "good ones are not done again"


def test_an_abandoned_run_can_be_claimed_and_an_ended_one_reopened(store: Store, dead_owner: str) -> None:
    run = start_run(store, owner=dead_owner)
    assert store.claims.acquire("run", run.id)
    assert store.runs.finish(run.id, "failed")
    assert store.claims.acquire("run", run.id, "b").state == "done"
    assert store.claims.acquire("run", run.id, "b", redo=True)
    assert store.runs.get(run.id).status == "running"


@pytest.mark.parametrize("kind", ["run", "trial"])
def test_a_run_or_trial_must_exist_to_be_claimed(store: Store, kind: ClaimKind) -> None:
    with pytest.raises(InputError, match=f"there is no {kind} 'nowhere/1' to claim"):
        store.claims.acquire(kind, "nowhere/1")


def test_a_released_trial_is_pending_again(store: Store) -> None:
    run = start_run(store).id
    store.trials.add(trial(run, 0))
    claimed = store.trials.claim_next(run, owner="a")
    assert claimed is not None
    assert store.claims.renew("trial", claimed.key, "a")
    store.claims.release("trial", claimed.key, "a")
    assert (store.trials.get(run, 0).status, store.trials.get(run, 0).owner) == ("pending", None)


def test_a_failed_trial_is_redone_on_request(store: Store) -> None:
    run = start_run(store).id
    store.trials.finish(trial(run, 0, outcome=Outcome.CRASHED), "a")
    store.trials.finish(trial(run, 1, outcome=Outcome.REFUSED), "a")
    assert store.claims.acquire("trial", f"{run}/0", "b").state == "done"
    assert store.claims.acquire("trial", f"{run}/0", "b", redo=True)
    assert store.trials.get(run, 0).status == "running"
    assert store.claims.acquire("trial", f"{run}/1", "b", redo=True).state == "done", "not retryable"


def test_claims_of_different_kinds_do_not_meet(store: Store) -> None:
    assert store.claims.acquire("pass_run", key("work"), "a")
    assert store.claims.acquire("evaluation", key("work"), "b")
    assert not store.claims.renew("evaluation", key("work"), "a")
    assert not store.claims.renew("pass_run", key("unknown"), "a")


def test_the_default_owner_is_this_process(store: Store) -> None:
    claim = store.claims.acquire("pass_run", key("work"))
    assert (claim.state, claim.owner) == ("mine", store.owner)
    assert store.claims.renew("pass_run", key("work"))
