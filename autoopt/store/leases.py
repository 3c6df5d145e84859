"""Leases: judging whether their owners still work, and renewing one's own while work is under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from autoopt.errors import SystemFailure
from autoopt.store.contracts import LEASE_SECONDS, Store
from autoopt.store.owner import is_known_alive, is_known_dead
from autoopt.store.records import ClaimKind, RunStatus


def is_abandoned(lease: float | None, owner: str | None, now: float) -> bool:
    """True if nobody works any more on what `owner` claimed until `lease`."""
    return lease is None or owner is None or lease <= now or is_known_dead(owner)


def is_run_abandoned(lease: float | None, owner: str | None, now: float) -> bool:
    """Like `is_abandoned`, for decisions that cannot be undone: a living owner counts even if its lease has ended."""
    return is_abandoned(lease, owner, now) and not (owner is not None and is_known_alive(owner))


@contextmanager
def renewed_claim(
    store: Store, kind: ClaimKind, key: str, owner: str | None = None, seconds: float = LEASE_SECONDS
) -> Iterator[threading.Event]:
    """Renew a claim at once, and then three times per lease from a thread of its own until the block ends.

    Yields:
        An event that is set once the claim is lost. The block should then stop: its result will be refused.
    """
    lost, ended = threading.Event(), threading.Event()

    def renew() -> None:
        # The lease may outlive a database that is unreachable for a while.
        with suppress(SystemFailure):
            if not store.claims.renew(kind, key, owner, seconds):
                lost.set()

    def renew_until_end() -> None:
        while not lost.is_set() and not ended.wait(seconds / 3):
            renew()

    renew()
    thread = threading.Thread(target=renew_until_end, name=f"lease of {key[:12]}", daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        ended.set()
        thread.join()


def abandon_run(store: Store, run: str, error: BaseException) -> str:
    """Record that an error ended a run: as failed, or as cancelled if the user stopped it.

    Returns:
        How to continue a cancelled run; empty for a failed one.
    """
    status: RunStatus = "failed" if isinstance(error, Exception) else "cancelled"
    with suppress(SystemFailure):  # the caller reports `error`, which usually has the same cause
        store.runs.finish(run, status, {"error": str(error)})
    if status == "failed":
        return ""
    return f"run {run} was cancelled; continue it with 'autoopt resume {run}'"
