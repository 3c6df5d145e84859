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

LEAD = 1e6
"""Untimed inferences before a block, in ns: the other models have used the caches, and their threads still spin for a
while."""
LEAD_ON_SEVERAL_THREADS = 8e6
"""The same for a model on several threads. A transformer of 0.43 ms took 15 % longer in the second millisecond after
another model's turn, 3 % in the fourth and 1 % in the sixth, its smaller candidate 8, 1 and 0 %; on one thread 4, 1 and
0 %. Beside other programs, four models needed 3 to 10 ms."""
LEAD_CALLS, LEAD_LONG = 2, 5e7
"""Fewest inferences of a lead-in, unless they take longer than this many ns. Without any, two models of 6 and
11 ms had a ratio of 0.59; with five inferences, 0.57."""
BLOCK = 2.5e6
"""Length of a block in ns. Short blocks alternate often, so that a disturbance meets all models: beside other programs,
the ratio of two models of 3 ms with a true ratio of 0.95 was 0.93 to 1.00 in blocks of 4 ms after a lead-in of 3 ms,
0.94 to 0.96 in short ones."""
SEVERAL_CALLS, SEVERAL = 2, 2e7
"""Fewest inferences of a block, unless they take longer than this many ns."""
LONG = 2e8
"""Time of one inference, in ns, from which cold caches at its start no longer matter. A model of 5 ms that ran after
another one took 3 % longer, and its partner of 3 ms 8 %."""
LARGEST_BLOCK = 4096
"""Inferences of one block at most, for models of well below a microsecond."""


def lead_of(threads: int) -> float:
    """Return the untimed inferences before a block of a model on some threads, in ns."""
    return LEAD_ON_SEVERAL_THREADS if threads > 1 else LEAD


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
    lead_ns: float = LEAD
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
        count = int(max(BLOCK // inference_ns, min(SEVERAL_CALLS, SEVERAL // inference_ns), 1))
        lead_in = 0
        if inference_ns < LONG:
            lead_in = max(int(self.lead_ns // inference_ns) + 1, int(min(LEAD_CALLS, LEAD_LONG // inference_ns)))
        return time_block(replica.call, min(count, LARGEST_BLOCK), min(lead_in, LARGEST_BLOCK))

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
