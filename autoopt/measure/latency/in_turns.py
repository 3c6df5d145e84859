"""Models in processes of their own, measured in turns: each may run on another version of the runtime.

`open_session` and `time_block` run in the workers. The blocks alternate between the processes, so that a disturbance
meets all models, and the ratios are computed here as for models in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.measure.inference.batches import sized
from autoopt.measure.inference.inputs import evaluation_data
from autoopt.measure.intervals.pooling import BEYOND, Observation, observation, pool
from autoopt.measure.latency.comparison import Comparison, shared_variance
from autoopt.measure.latency.measurement import Measurement
from autoopt.measure.latency.meter import subject_of
from autoopt.measure.latency.subjects import Replica, Subject
from autoopt.measure.latency.timing import Block, Call, WarmUp
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Estimate

OPEN: Final = f"{__name__}:open_session"
TIME: Final = f"{__name__}:time_block"
CallWorker: TypeAlias = Callable[[str, dict[str, JsonValue]], JsonObject]
"""Calls a function in the process of one model, always the same process; raises if the call fails."""

_opened: list[Subject] = []
"""In a worker: the model of this process."""


@dataclass(frozen=True)
class OpenedSession:
    """The reply of `open_session`. Times are in ns."""

    cold_start: float
    first_inference: float
    warm: WarmUp


@dataclass(frozen=True)
class TimedBlock:
    """The reply of `time_block`: a `Block` with its arrays as lists."""

    wall: list[float]
    on_core: list[float] | None
    """None if it was not measured."""
    preempted: float
    switches: int
    helper_switches: int
    waited: bool


def open_session(payload: JsonObject) -> dict[str, JsonValue]:
    """In a worker: open one more session for `{"request": MeasureRequest, "limit_ns"}` and warm it up.

    Raises:
        InputError: the data do not fit the model.
        Exception: onnxruntime's, where it refuses the model.
    """
    if not _opened:
        document = payload["request"]
        assert isinstance(document, Mapping)
        request, _ = sized(MeasureRequest.from_json(document))
        _opened.append(subject_of(request, evaluation_data(request), request.candidate))
    limit = payload["limit_ns"]
    assert isinstance(limit, int | float)
    replica = _opened[0].add_replica(limit)
    return to_json(OpenedSession(replica.cold_start, replica.first_inference, replica.warm))


def time_block(payload: JsonObject) -> dict[str, JsonValue]:
    """In a worker: time a block of session number `{"replica"}`; the JSON of a `TimedBlock`."""
    replica = payload["replica"]
    assert isinstance(replica, int)
    block = _opened[0].time_block(replica)
    on_core = None
    if block.has_core_times:
        on_core = block.on_core.tolist()
    timed = TimedBlock(
        block.wall.tolist(), on_core, block.preempted, block.switches, block.helper_switches, block.waited
    )
    return to_json(timed)


class RemoteSubject(Subject):
    """A model in a process of its own."""

    def __init__(self, call: CallWorker, request: MeasureRequest) -> None:
        """Name the request's candidate, which `call` runs; its first session opens with the first replica."""
        super().__init__(_elsewhere)
        self._call = call
        self._request = request

    def add_replica(self, limit_ns: float) -> Replica:
        reply = self._call(OPEN, {"request": self._request.to_json(), "limit_ns": limit_ns})
        opened = from_json(OpenedSession, reply)
        replica = Replica(_not_callable, opened.cold_start, opened.first_inference, opened.warm)
        self.replicas.append(replica)
        return replica

    def time_block(self, index: int) -> Block:
        timed = from_json(TimedBlock, self._call(TIME, {"replica": index}))
        wall = np.array(timed.wall, np.float64)
        on_core = wall
        if timed.on_core is not None:
            on_core = np.array(timed.on_core, np.float64)
        return Block(wall, on_core, timed.preempted, timed.switches, timed.helper_switches, timed.waited)


def _elsewhere(number: int) -> Call:
    raise AssertionError(f"session {number} opens in another process")


def _not_callable() -> object:
    raise AssertionError("the session lies in another process")


@dataclass(frozen=True)
class Round:
    """One measurement of several models beside the same reference."""

    observations: tuple[Observation, ...]
    disturbed: bool


def measure_round(
    reference: Subject, others: Mapping[str, Subject], settings: MeasurementSettings, number: int
) -> Round:
    """Time all models in turns until their ratios to the reference are certain or the time for all of them is up."""
    comparisons = [Comparison(subject, reference, seed=settings.seed) for subject in others.values()]
    Measurement(comparisons, settings).run()
    shared = shared_variance(comparisons)
    observations = []
    for name, comparison in zip(others, comparisons, strict=True):
        observations.append(observation(name, str(number), comparison.estimate(), shared))
    return Round(tuple(observations), any(comparison.disturbed for comparison in comparisons))


def pooled_ratios(rounds: Sequence[Round]) -> dict[str, Estimate]:
    """Pool the ratios of each model over the rounds, as they are to hold in other processes too."""
    observations = [item for one in rounds for item in one.observations]
    posterior = pool(observations)
    return {name: posterior.estimate(name, BEYOND) for name in posterior.candidates}
