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
from autoopt.measure.meters import Meter
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.outcome import Outcome
from autoopt.passes.request import PassReply, PassRequest
from autoopt.workers import CallResult, gated_call
from autoopt.workers.hosts import CallLimits, Host, HostReply, Reply

NO_SPACE = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")
"""Texts of the system's errors for a full disk, as libraries pass them on."""


@dataclass(frozen=True)
class CallTerms:
    """The terms of a call on behalf of a run."""

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
    result = gated_call(resources.pool, function, payload, limit)
    _raise_if_disk_full(result.message)
    for step in (result.value or {}).get("steps", ()):
        _raise_if_disk_full(step["message"])
    if result.died:
        quarantine.note(subject(), result)
    return result


def run_pass(ctx: RunContext, host: Host, request: PassRequest, terms: CallTerms) -> HostReply[PassReply]:
    """Run passes on a host; raises like `guarded_call`."""
    reply = guarded_call(ctx, host, terms, lambda limits: host.run_pass(request, limits))
    for step in reply.reply.steps if reply.reply else ():
        _raise_if_disk_full(step.message)
    return reply


def evaluate_model(
    ctx: RunContext, host: Host, meter: Meter, request: MeasureRequest, terms: CallTerms
) -> HostReply[MeasureReply]:
    """Measure a candidate on a host; raises like `guarded_call`."""
    return guarded_call(ctx, host, terms, lambda limits: host.evaluate_model(meter, request, limits))


def guarded_call(
    ctx: RunContext, host: Host, terms: CallTerms, work: Callable[[CallLimits], HostReply[Reply]]
) -> HostReply[Reply]:
    """Call a host behind the gate and within the run's limits, unless the subject is in quarantine.

    Raises:
        TimeUp: The deadline passed before the machine was free, or the call was cut off by it.
        SystemFailure: The disk is full.
    """
    resources, attempt = ctx.resources, ctx.attempt
    reason = resources.quarantine.reason(terms.subject)
    if reason is not None:
        return HostReply(CallResult(Outcome.CRASHED, message=reason), None)
    until = time.monotonic() + attempt.remaining()
    gate = resources.gate.measuring(until) if terms.exclusive else resources.gate.working(until)
    # A remote machine has a gate of its own, which its worker takes.
    with nullcontext() if host.remote else gate:
        began = time.monotonic()
        seconds = attempt.call_seconds(terms.limit)
        reply = work(CallLimits(seconds, ctx.problem.limits.memory, terms.exclusive))
        attempt.counts.add_seconds(terms.phase, time.monotonic() - began)
    _raise_if_disk_full(reply.result.message)
    if reply.result.outcome is Outcome.TIMEOUT and seconds < terms.limit:
        raise TimeUp
    resources.quarantine.note(terms.subject, reply.result)
    return reply


def _raise_if_disk_full(message: str) -> None:
    """Raise for a full disk, which says nothing about the model and must not be stored as its failure."""
    if any(text in message for text in NO_SPACE):
        remedy = "free some space ('autoopt store gc' may), or move AUTOOPT_HOME or TMPDIR"
        raise SystemFailure(message, remedy=remedy)
