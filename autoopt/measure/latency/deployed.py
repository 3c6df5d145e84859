"""Worker functions for one of several deployments that are timed in turns, each in a process of its own.

The process holds the sessions of its model. Times are in ns.
"""

from __future__ import annotations

from typing import cast

from autoopt.json_codec import JsonObject, JsonValue, to_json
from autoopt.measure.inference.batches import evaluation_data, sized
from autoopt.measure.latency.busy import OtherPrograms, can_go_first
from autoopt.measure.latency.load import thread_count
from autoopt.measure.latency.prepare import subject_of
from autoopt.measure.latency.subjects import Subject
from autoopt.measure.request import MeasureRequest

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
