"""The models under measurement: replicas of a session, each with its own copy of the inputs.

Two sessions of one model in one process differ by up to a few percent for as long as they live, depending on where
their weights and buffers lie. So a model is measured in several sessions, and the spread between sessions is part of
the interval; repeats in one session would never show it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from autoopt.measure.latency.timer import Block, BlockTimes, Call, WarmUp, time_block, warm_up
from autoopt.model.model_file import ModelFile
from autoopt.tuning import TIMING

LEAD_CALLS, LEAD_LONG = 2, 5e7
"""Fewest inferences of a lead-in, unless they take longer than this many ns. Without any, two models of 6 and
11 ms had a ratio of 0.59; with five inferences, 0.57."""
SEVERAL_CALLS, SEVERAL = 2, 2e7
"""Fewest inferences of a block, unless they take longer than this many ns."""


def lead_of(threads: int) -> float:
    """Return the untimed inferences before a block of a model on some threads, in ns."""
    return TIMING.lead_on_several_threads_ns if threads > 1 else TIMING.lead_ns


MakeReplica: TypeAlias = Callable[[int], Call]
"""Makes the session with that number and its first inputs, and returns the function that runs it once."""


@dataclass
class Replica:
    """One session: its run function, its start-up costs and the blocks timed so far. Times are in ns."""

    call: Call
    cold_start: float
    first_inference: float
    warm: WarmUp
    blocks: BlockTimes = field(default_factory=BlockTimes)


@dataclass
class Subject:
    """One model with its replicas."""

    make: MakeReplica
    lead_ns: float = TIMING.lead_ns
    """Untimed inferences before a block."""
    replicas: list[Replica] = field(default_factory=list)
    is_idle: bool = False
    """The execution provider takes no node of the model."""
    kept: list[Replica] | None = None
    """Sessions that stay open for later measurements: these are timed first, and new ones are added."""

    def add_replica(self, limit_ns: float) -> Replica:
        """Open one more session and warm it up for at most `limit_ns`; or run one once that was kept."""
        number = len(self.replicas)
        if self.kept is not None and number < len(self.kept):
            replica = replace(self.kept[number], blocks=BlockTimes())
            replica.call()
            self.replicas.append(replica)
            return replica
        clock = time.perf_counter_ns
        began = clock()
        call = self.make(number)
        cold_start = clock() - began
        began = clock()
        call()
        first_inference = clock() - began
        warm = warm_up(call, max(0.0, limit_ns - first_inference))
        replica = Replica(call, cold_start, first_inference, warm)
        self.replicas.append(replica)
        if self.kept is not None:
            self.kept.append(replace(replica, blocks=BlockTimes()))
        return replica

    @property
    def opening_ns(self) -> float:
        """The time that another session takes to open and to run once."""
        if self.kept is not None and len(self.replicas) < len(self.kept):
            return 0.0
        first = self.replicas[0]
        return first.cold_start + first.first_inference

    def time_block(self, index: int) -> Block:
        """Time one block of replica `index`."""
        replica = self.replicas[index]
        inference_ns = max(1.0, replica.warm.time)
        count = int(max(TIMING.block_ns // inference_ns, min(SEVERAL_CALLS, SEVERAL // inference_ns), 1))
        lead_in = 0
        if inference_ns < TIMING.long_ns:
            lead_in = max(int(self.lead_ns // inference_ns) + 1, int(min(LEAD_CALLS, LEAD_LONG // inference_ns)))
        return time_block(replica.call, min(count, TIMING.largest_block), min(lead_in, TIMING.largest_block))

    def close_sessions(self) -> None:
        """Let go of all sessions; what was timed stays."""
        for replica in self.replicas:
            replica.call = _closed

    @property
    def repeats(self) -> int:
        """Timed inferences so far."""
        return sum(len(block) for replica in self.replicas for block in replica.blocks)


def _closed() -> object:
    raise AssertionError("the session is closed")


SubjectOf: TypeAlias = Callable[[ModelFile], Subject]
"""Makes the subject of a model."""
