"""The latency meter: a request goes through four rooms, and each of its profiles does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoopt.measure.latency.estimate import estimate
from autoopt.measure.latency.prepare import on_cores, prepare
from autoopt.measure.latency.profiles import joint_reply, read_profiles, request_for
from autoopt.measure.latency.reply import reply_to
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
