"""Calls into workers on behalf of a run: behind the gate, within the limits, never a third time with a killer."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from autoopt.engine.work.context import RunContext
from autoopt.engine.work.environment import library_version
from autoopt.errors import SystemFailure, TimeUp
from autoopt.outcome import Outcome
from autoopt.store import EventRecord, Store
from autoopt.workers import CallResult, WorkerPool, gated_call
from autoopt.workers.hosts import Host
from autoopt.workers.quarantine import Deaths

DEATH = "worker death"
"""Kind of the events that remember what killed a worker."""
NO_SPACE = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")
"""What the system says where there is none, whatever library passes it on."""


def deaths_of(store: Store) -> Deaths:
    """The quarantine as the store remembers it; deaths in other versions of the libraries do not count."""
    libraries = [library_version("onnx"), library_version("onnxruntime")]
    events = [e for e in store.events.all(kind=DEATH) if e.data.get("libraries") == libraries]

    def remember(subject: str, message: str) -> None:
        data = {"message": message, "libraries": libraries}
        store.events.add(EventRecord(kind=DEATH, subject=subject, data=data))

    return Deaths([(event.subject, str(event.data.get("message", ""))) for event in events], remember)


def first_call(
    store: Store, pool: WorkerPool, function: str, payload: dict[str, Any], *, subject: Callable[[], str], limit: float
) -> CallResult:
    """Call a worker function with a model before there is a run, behind the gate.

    Args:
        subject: gives the digest of what is read; only asked for where something has died in a worker before.
    """
    deaths = deaths_of(store)
    reason = deaths.reason(subject()) if deaths.any else None
    if reason is not None:
        return CallResult(Outcome.CRASHED, message=reason)
    called = gated_call(pool, function, payload, limit)
    _refuse_full_disk(called)
    if called.died:
        deaths.note(subject(), called)
    return called


def call(
    ctx: RunContext,
    function: str,
    payload: dict[str, Any],
    *,
    subject: str,
    limit: float,
    phase: str,
    alone: bool = False,
    host: Host | None = None,
) -> CallResult:
    """Call a worker function with a model.

    Args:
        subject: what is held to blame if the worker dies: a model's digest, or that of a model and a pass.
        limit: seconds; less where the run's time is nearly up.
        phase: what the time is booked under.
        alone: whether nothing else may run on this machine meanwhile.
        host: another one than this machine and interpreter.

    Raises:
        TimeUp: the run's time was up while the machine was not free, or less than `limit` was left and did not suffice.
    """
    reason = ctx.quarantine.reason(subject)
    if reason is not None:
        return CallResult(Outcome.CRASHED, message=reason)
    elsewhere = host is not None and host.remote  # whose machine has a gate of its own
    enter = ctx.gate.measuring if alone else ctx.gate.working
    with nullcontext() if elsewhere else enter(ctx.deadline):
        began, seconds, memory = time.monotonic(), ctx.seconds_for(limit), ctx.limits.memory
        if host is None:
            called = ctx.pool.call(function, payload, timeout=seconds, memory=memory)
        else:
            called = host.call(function, payload, timeout=seconds, memory=memory, alone=alone)
        ctx.counts.took(phase, time.monotonic() - began)
    _refuse_full_disk(called)
    if called.outcome is Outcome.TIMEOUT and seconds < limit:
        raise TimeUp
    ctx.quarantine.note(subject, called)
    return called


def _refuse_full_disk(called: CallResult) -> None:
    """What failed for want of space says nothing about the model, and must not be remembered of it.

    Raises:
        SystemFailure: the call, or a pass in it, found no space.
    """
    for text in (called.message, *(str(s.get("message", "")) for s in (called.value or {}).get("steps", ()))):
        if any(words in text for words in NO_SPACE):
            raise SystemFailure(text, remedy="free some space ('autoopt store gc' may), or move AUTOOPT_HOME or TMPDIR")
