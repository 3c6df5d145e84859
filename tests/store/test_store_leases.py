"""Leases: judging and renewing them."""

from __future__ import annotations

from store_helpers import key

from autoopt.store import Store
from autoopt.store.leases import renewed_claim


def test_a_claim_is_renewed_while_the_block_runs(store: Store) -> None:
    work = key("work")
    store.claims.acquire("pass_run", work, "a", seconds=-1.0)
    with renewed_claim(store, "pass_run", work, "a") as lost:
        assert store.claims.acquire("pass_run", work, "b").state == "held", "renewed at once"
        assert not lost.is_set()
    with renewed_claim(store, "pass_run", work, "a", seconds=0.03) as lost:
        store.claims.release("pass_run", work, "a")
        assert store.claims.acquire("pass_run", work, "b")
        assert lost.wait(30.0), "noticed at the next renewal"
    with renewed_claim(store, "pass_run", work, "a") as lost:
        assert lost.is_set()
