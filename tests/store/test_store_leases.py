"""Leases: judging and renewing them."""

from __future__ import annotations

import pytest
from children import HANG_SECONDS
from store_helpers import key, start_run
from store_owners import by

from autoopt.owner import this_process
from autoopt.store import Store
from autoopt.store.leases import (
    end_run,
    renewed_claim,
    resumable_runs,
    run_lease,
)
from autoopt.store.records import is_abandoned, is_run_abandoned


def test_a_claim_is_renewed_while_the_block_runs(store: Store) -> None:
    work = key("work")
    by(store, "a").claims.acquire("pass_run", work, seconds=-1.0)
    with renewed_claim(by(store, "a"), "pass_run", work) as lost:
        assert by(store, "b").claims.acquire("pass_run", work).state == "held", "renewed at once"
        assert not lost.is_set()
    with renewed_claim(by(store, "a"), "pass_run", work, seconds=0.03) as lost:
        by(store, "a").claims.release("pass_run", work)
        assert by(store, "b").claims.acquire("pass_run", work)
        assert lost.wait(HANG_SECONDS), "noticed at the next renewal"
    with renewed_claim(by(store, "a"), "pass_run", work) as lost:
        assert lost.is_set()


@pytest.mark.parametrize(
    ("error", "status", "told"), [(KeyboardInterrupt(), "cancelled", True), (ValueError("bad"), "failed", False)]
)
def test_an_error_ends_the_run_that_it_leaves(store: Store, error: BaseException, status: str, told: bool) -> None:
    run = start_run(store).id
    notes: list[str] = []
    with pytest.raises(type(error)), run_lease(store, run, notes.append):
        raise error
    assert (store.runs.get(run).status, store.runs.get(run).result) == (status, {"error": str(error)})
    assert [f"autoopt resume {run}" in note for note in notes] == [True] * told


def test_a_run_is_under_way_after_its_lease_ends_without_an_error(store: Store) -> None:
    run = start_run(store).id
    with run_lease(store, run, pytest.fail):
        pass
    assert store.runs.get(run).status == "running"


@pytest.mark.parametrize(
    ("lease", "owner", "abandoned"),
    [(None, "a", True), (20.0, None, True), (10.0, "a", True), (10.1, "a", False), (9.0, "a", True)],
)
def test_work_without_a_lease_or_owner_is_abandoned(lease: float | None, owner: str | None, abandoned: bool) -> None:
    assert is_abandoned(lease, owner, now=10.0) is abandoned


def test_work_of_a_dead_process_is_abandoned_before_its_lease_ends(dead_owner: str) -> None:
    assert is_abandoned(20.0, dead_owner, now=10.0)
    assert is_run_abandoned(20.0, dead_owner, now=10.0)


def test_a_run_of_a_living_process_is_not_abandoned_after_its_lease() -> None:
    assert is_abandoned(9.0, this_process(), now=10.0)
    assert not is_run_abandoned(9.0, this_process(), now=10.0)


def test_the_interim_result_of_a_run_survives_its_end(store: Store) -> None:
    run = start_run(store)
    assert store.runs.update(run.id, {"baseline": {}})
    store.runs.set_seconds(run.id, 42.0)
    by(store, "other").runs.set_seconds(run.id, 1.0)
    assert store.runs.get(run.id).seconds == 42.0
    assert not by(store, "other").runs.update(run.id, {"baseline": None})
    end_run(store, run.id, "cancelled", "")
    assert store.runs.get(run.id).result == {"baseline": {}, "error": ""}
    assert not store.runs.update(run.id, {"baseline": None})


def test_interrupted_and_cancelled_runs_can_be_resumed(store: Store, dead_owner: str) -> None:
    cancelled, living = start_run(store, identity="c"), start_run(store, identity="l", owner="elsewhere")
    interrupted = start_run(store, identity="i", owner=dead_owner)
    finished, twin = start_run(store, identity="f"), start_run(store, identity="f")
    part = start_run(store, identity="p", parent=cancelled.id)
    for run in (cancelled, twin, part):
        end_run(store, run.id, "cancelled", "")
    store.runs.finish(finished.id, "finished", {})
    assert [run.id for run in resumable_runs(store)] == [interrupted.id, cancelled.id]
    assert living.id not in [run.id for run in resumable_runs(store)]
