"""The latency meter: a request goes through four rooms, and each of its profiles does.

`open_session` and `time_block` are worker functions for one of several deployments that are timed in turns, each in a
process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import numpy as np

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue, to_json
from autoopt.measure.inference import evaluation_data, sized
from autoopt.measure.latency.busy import OtherPrograms, can_go_first, thread_count
from autoopt.measure.latency.estimate import estimate
from autoopt.measure.latency.prepare import prepare, read_profiles, request_for, subject_of
from autoopt.measure.latency.reply import joint_reply, reply_to
from autoopt.measure.latency.timer import Subject
from autoopt.measure.latency.timing import time_models
from autoopt.measure.request import MeasureReply, MeasureRequest


def measure(request: MeasureRequest) -> MeasureReply:
    """Measure latency metrics of the candidate, its rivals and, if it runs, of the source, in turns.

    A candidate that equals the source (same bytes, same options, or the same graph once the runtime has optimized both)
    is measured alone; its ratios are exactly 1. If the settings have profiles, each of them is measured.

    Raises:
        InputError: the settings or the data do not fit the model.
        Exception: onnxruntime's, where it refuses the candidate or a rival.
    """
    if not request.settings.profiles:
        return _measure_once(request)
    profiles = read_profiles(request)
    share = request.settings.seconds / len(profiles)
    replies: dict[str, MeasureReply] = {}
    for profile in profiles:
        single = request_for(request, profile)
        single = replace(single, settings=replace(single.settings, seconds=share, source_ms=None))
        replies[str(profile.name)] = _measure_once(single, one_thread=False)
    weights = np.array([profile.weight for profile in profiles])
    weights = weights / weights.sum()
    joint = []
    for number in range(len(request.models)):
        parts = {name: (reply, *reply.rivals)[number] for name, reply in replies.items()}
        joint.append(joint_reply(request, parts, weights))
    return replace(joint[0], rivals=tuple(joint[1:]))


def _measure_once(request: MeasureRequest, *, one_thread: bool = True) -> MeasureReply:
    """Measure without profiles. With `one_thread`, ratios on one thread count where others disturb several threads."""
    with on_cores(request.settings.affinity):
        prepared = prepare(request)
        times = time_models(prepared, one_thread=one_thread)
        return reply_to(prepared, times, estimate(prepared.request, times))


@contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Run this process on those cores only; an empty list changes nothing.

    Raises:
        InputError: This machine has none of them.
    """
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, set(cores))
    except (OSError, OverflowError, ValueError):
        names = ", ".join(map(str, cores))
        have = ", ".join(map(str, sorted(before)))
        raise InputError(f"measurement.affinity: this machine has no core {names}", remedy=f"it has {have}") from None
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_deployed: list[tuple[Subject, OtherPrograms]] = []
"""The model of this process."""


def open_session(payload: JsonObject) -> dict[str, JsonValue]:
    """Open one more session of the candidate of `request` and warm it up for at most `limit_ns`.

    Its threads go before other programs if it is `ahead` and that is allowed.

    Returns:
        `{"cold_start", "first_inference", "warm"}` of a `Replica`.
    """
    if not _deployed:
        request, _ = sized(MeasureRequest.from_json(cast(JsonObject, payload["request"])))
        goes_first = bool(payload["ahead"]) and can_go_first()
        others = OtherPrograms(goes_first, thread_count(request, request.candidate))
        _deployed.append((subject_of(request, evaluation_data(request), request.candidate), others))
    replica = _deployed[0][0].add_replica(cast(float, payload["limit_ns"]))
    _deployed[0][1].include_helpers()
    warm = to_json(replica.warm)
    return {"cold_start": replica.cold_start, "first_inference": replica.first_inference, "warm": warm}


def time_block(payload: JsonObject) -> dict[str, JsonValue]:
    """Time a block of session number `replica`: `{"wall", "preempted", "helper_switches"}` of a `Block`."""
    subject, others = _deployed[0]
    with others.behind_this_thread():
        block = subject.time_block(cast(int, payload["replica"]))
    return {"wall": block.wall.tolist(), "preempted": block.preempted, "helper_switches": block.helper_switches}
