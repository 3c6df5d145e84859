"""Keeping a claim while the work goes on, and leaving a run that ends early."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from autoopt.errors import SystemFailure
from autoopt.store.base import LEASE_SECONDS, Store
from autoopt.store.records import ClaimKind, RunStatus


@contextmanager
def keeping(
    store: Store, kind: ClaimKind, key: str, owner: str | None = None, seconds: float = LEASE_SECONDS
) -> Iterator[threading.Event]:
    """Renew a claim at once, then from a thread of its own, thrice in each lease, for as long as the block runs.

    Yields:
        An event that is set once the claim is lost, which is the sign to stop: the result will be refused.
    """
    lost, over = threading.Event(), threading.Event()

    def renew() -> None:
        try:
            if not store.renew(kind, key, owner, seconds):
                lost.set()
        except SystemFailure:
            pass  # the lease may outlive the trouble

    def renew_until_over() -> None:
        while not lost.is_set() and not over.wait(seconds / 3):
            renew()

    renew()
    thread = threading.Thread(target=renew_until_over, name=f"lease of {key[:12]}", daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        over.set()
        thread.join()


def abandon(store: Store, run: str, error: BaseException) -> str:
    """Record that an error has ended a run: as failed, or as cancelled where somebody wanted its end.

    Returns:
        What there is to say of it: how a cancelled one goes on.
    """
    status: RunStatus = "failed" if isinstance(error, Exception) else "cancelled"
    with suppress(SystemFailure):  # what has gone wrong is told by the error itself
        store.finish_run(run, status, {"error": str(error)})
    return f"run {run} was cancelled; 'autoopt resume {run}' goes on with it" if status == "cancelled" else ""
