"""Doing a piece of work once, whatever process or machine is at it: claim it, or wait for who has it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from autoopt.engine.work.context import RunContext
from autoopt.errors import TimeUp
from autoopt.store.records import ClaimKind

POLL_SECONDS = 0.2
GRACE_SECONDS = 60.0


@contextmanager
def kept(ctx: RunContext, kind: ClaimKind, key: str) -> Iterator[None]:
    """Within: work that has been claimed; it is free for others again where the run's time ends before it is done."""
    try:
        yield
    except TimeUp:
        ctx.store.claims.release(kind, key)
        raise


def claim_or_wait(ctx: RunContext, kind: ClaimKind, key: str, limit: float) -> bool:
    """True: the work is ours to do. False: somebody else has finished it.

    The lease covers the work's own limit and some grace for waiting at the gate; a dead owner's claim on this machine
    is free at once.

    Raises:
        TimeUp: somebody else is still at it after the run's time.
    """
    while True:
        claim = ctx.store.claims.acquire(
            kind, key, seconds=ctx.seconds_for(limit) + GRACE_SECONDS, redo=ctx.retry_failed or ctx.redo_before > 0
        )
        if claim.state != "held":
            return claim.state == "mine"
        if ctx.tick() > ctx.deadline + GRACE_SECONDS:
            raise TimeUp
        time.sleep(POLL_SECONDS)  # another process is at it; the database tells when it is done
