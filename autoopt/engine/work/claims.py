"""Claims on pieces of work, so that one process executes each piece and others wait for its result."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from autoopt.engine.work.attempt import Attempt
from autoopt.errors import InputError, TimeUp
from autoopt.store import Store
from autoopt.store.records import ClaimKind

POLL_SECONDS = 0.2
"""Time between two looks at work that another process executes."""
GRACE_SECONDS = 60.0
"""Time beyond a call's own limit that a lease covers: waiting at the gate, storing the result."""


@contextmanager
def released_on_error(store: Store, kind: ClaimKind, key: str) -> Iterator[None]:
    """Release a claim if the run ends before the claimed work is done: its time is over, or an input has changed."""
    try:
        yield
    except (TimeUp, InputError):
        store.claims.release(kind, key)
        raise


def claim_or_wait(
    store: Store, attempt: Attempt, kind: ClaimKind, key: str, limit: float, *, redo: bool = False
) -> bool:
    """Claim a piece of work that may take `limit` seconds, or wait until another process has finished it.

    With `redo`, a stored failure is no result.

    Returns:
        True if the claim is ours, False if another process has finished the work.

    Raises:
        TimeUp: Another process is still working on it after the run's deadline.
    """
    while True:
        seconds = attempt.call_seconds(limit) + GRACE_SECONDS
        claim = store.claims.acquire(kind, key, seconds=seconds, redo=redo or attempt.retry.active)
        if claim.state != "held":
            return claim.state == "mine"
        if attempt.remaining() < -GRACE_SECONDS:
            raise TimeUp
        # The other process may be on another machine, so the database is all there is to ask.
        time.sleep(POLL_SECONDS)
