"""Calls into workers: behind the gate, within time and memory limits, and never with a quarantined model."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from autoopt.engine.work.context import RunContext
from autoopt.errors import TimeUp, full_disk
from autoopt.outcome import Cause, Outcome
from autoopt.passes.request import PassReply, PassRequest, StepReply
from autoopt.problem.hosts import CallLimits, Host, HostReply, Reply
from autoopt.problem.quarantine import Subject
from autoopt.workers import CallResult, Gate

WAITING = "waiting"
"""Phase in which calls wait for other runs on this machine."""


@dataclass(frozen=True)
class CallTerms:
    """The terms of a call on behalf of a run."""

    subject: Subject
    """Blamed if the worker dies."""
    limit: float
    """Seconds."""
    phase: str
    """Phase of the run that the time counts for."""
    exclusive: bool = False
    """Nothing else of autoopt may run on the machine meanwhile."""
    fresh: bool = False
    """The call needs a worker that has served no other."""


def run_pass(ctx: RunContext, host: Host, request: PassRequest, terms: CallTerms) -> HostReply[PassReply]:
    """Run passes on a host; raises like `guarded_call`."""

    def work(limits: CallLimits) -> HostReply[PassReply]:
        # A first try may have left files there.
        shutil.rmtree(request.output, ignore_errors=True)
        request.output.mkdir(parents=True)
        return host.run_pass(request, limits)

    reply = guarded_call(ctx, host, terms, work)
    for step in reply.reply.steps if reply.reply else ():
        if step.cause is Cause.FULL_DISK:
            raise full_disk(step.message)
    return reply


def guarded_call(
    ctx: RunContext, host: Host, terms: CallTerms, work: Callable[[CallLimits], HostReply[Reply]]
) -> HostReply[Reply]:
    """Call a host behind the gate and within the run's limits, unless the subject is in quarantine.

    What may have failed because of the machine or the set-up is tried once more as measurements are made: alone. What
    failed in a worker that had served other calls is tried once in a fresh one.

    Raises:
        TimeUp: The deadline passed before the machine was free, or the call was cut off by it.
        SystemFailure: The disk is full.
    """
    quarantine = ctx.resources.quarantine
    reason = quarantine.reason(terms.subject)
    if reason is not None:
        return HostReply(CallResult(Outcome.CRASHED, message=reason, cause=Cause.MACHINE), None)
    reply = _gated_call(ctx, host, terms, work)
    result = reply.result
    ends: list[CallResult | StepReply] = [result]
    if isinstance(reply.reply, PassReply):
        ends += reply.reply.steps
    if any(end.cause is not Cause.WORK for end in ends):
        reply = _gated_call(ctx, host, replace(terms, exclusive=True, fresh=True), work)
    elif result.shared and any(end.outcome in (Outcome.FAILED, Outcome.CRASHED) for end in ends):
        reply = _gated_call(ctx, host, replace(terms, fresh=True), work)
    quarantine.note(terms.subject, reply.result)
    return reply


def _gated_call(
    ctx: RunContext, host: Host, terms: CallTerms, work: Callable[[CallLimits], HostReply[Reply]]
) -> HostReply[Reply]:
    resources, attempt = ctx.resources, ctx.attempt
    until = time.monotonic() + attempt.remaining()
    gate = resources.gate.measuring(until) if terms.exclusive else resources.gate.working(until)
    with ExitStack() as stay:
        asked = time.monotonic()
        # Work waits for measurements of its own run, too; a measurement does not, as it pauses work of its own run.
        for_others = terms.exclusive or not Gate.entered
        try:
            passage = stay.enter_context(gate)
        finally:
            began = time.monotonic()
            if for_others:
                attempt.counts.add_seconds(WAITING, began - asked)
        seconds = attempt.call_seconds(terms.limit)
        # The end of the run's time holds for calls that were paused, too.
        latest = began + max(1.0, attempt.remaining() + attempt.grace)
        reply = work(CallLimits(seconds, ctx.problem.limits.memory, terms.fresh, latest))
        ended = time.monotonic()
        attempt.counts.add_seconds(terms.phase, ended - began)
        if terms.exclusive and passage.passed_over:
            # This process was suspended, and others worked meanwhile.
            reply = replace(reply, result=replace(reply.result, cause=Cause.MACHINE))
    if reply.result.cause is Cause.FULL_DISK:
        raise reply.result.to_exception()
    if reply.result.outcome is Outcome.TIMEOUT and (seconds < terms.limit or ended >= latest):
        raise TimeUp
    return reply
