"""Calls into workers: behind the gate, within time and memory limits, and never with a quarantined model."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from autoopt.engine.work.context import RunContext
from autoopt.engine.work.resources import Resources
from autoopt.errors import SystemFailure, TimeUp
from autoopt.outcome import Outcome
from autoopt.workers import CallResult, gated_call
from autoopt.workers.hosts import Host

NO_SPACE = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")
"""Texts of the system's errors for a full disk, as libraries pass them on."""


@dataclass(frozen=True)
class WorkerCall:
    """A call on behalf of a run."""

    function: str
    payload: dict[str, Any]
    subject: str
    """Blamed if the worker dies: a model's digest, or that of a model and the passes."""
    limit: float
    """Seconds."""
    phase: str
    """Phase of the run that the time counts for."""
    exclusive: bool = False
    """Nothing else of autoopt may run on the machine meanwhile."""


def first_call(
    resources: Resources, function: str, payload: dict[str, Any], *, subject: Callable[[], str], limit: float
) -> CallResult:
    """Call a worker function with a model before there is a run.

    Args:
        resources: Workers and quarantine.
        function: `module:function`.
        payload: JSON argument.
        subject: Computes the digest of what the worker reads. Computed only if any worker has died before.
        limit: Seconds.
    """
    quarantine = resources.quarantine
    if quarantine.any:
        reason = quarantine.reason(subject())
        if reason is not None:
            return CallResult(Outcome.CRASHED, message=reason)
    called = gated_call(resources.pool, function, payload, limit)
    _raise_if_disk_full(called)
    if called.died:
        quarantine.note(subject(), called)
    return called


def call(ctx: RunContext, host: Host, work: WorkerCall) -> CallResult:
    """Call a worker function on a host.

    Raises:
        TimeUp: The deadline passed before the machine was free, or the call was cut off by it.
        SystemFailure: The disk is full.
    """
    resources, attempt = ctx.resources, ctx.attempt
    reason = resources.quarantine.reason(work.subject)
    if reason is not None:
        return CallResult(Outcome.CRASHED, message=reason)
    until = time.monotonic() + attempt.remaining()
    gate = resources.gate.measuring(until) if work.exclusive else resources.gate.working(until)
    # A remote machine has a gate of its own, which its worker takes.
    with nullcontext() if host.remote else gate:
        began = time.monotonic()
        seconds = attempt.call_seconds(work.limit)
        called = host.call(work.function, work.payload, seconds, ctx.problem.limits.memory, alone=work.exclusive)
        attempt.counts.add_seconds(work.phase, time.monotonic() - began)
    _raise_if_disk_full(called)
    if called.outcome is Outcome.TIMEOUT and seconds < work.limit:
        raise TimeUp
    resources.quarantine.note(work.subject, called)
    return called


def _raise_if_disk_full(called: CallResult) -> None:
    """Raise for a full disk, which says nothing about the model and must not be stored as its failure."""
    steps = (called.value or {}).get("steps", ())
    for message in (called.message, *(str(step.get("message", "")) for step in steps)):
        if any(text in message for text in NO_SPACE):
            remedy = "free some space ('autoopt store gc' may), or move AUTOOPT_HOME or TMPDIR"
            raise SystemFailure(message, remedy=remedy)
