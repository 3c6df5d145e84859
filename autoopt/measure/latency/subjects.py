"""The models under the clock: replicas of a session, each with its own copy of the inputs.

Two sessions of the same model in one process differ by up to some percent for as long as they live (where their
weights and buffers happen to lie). So a model is measured in several sessions, and the spread between sessions is
part of the interval; repeats in one session would never show it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoopt.measure.latency.timing import Array, Block, Call, Times, WarmUp, block, outliers, warm_up

LEAD = 3e6
"""How many ns of inferences go before a block: the other model had the caches, and its threads still spin for a while.
Of two models of 0.5 and 0.7 ms with 8 sessions each, one inference as lead-in left the larger 3 % slower than it is by
itself, and the ratio off by 1.7 %; 3 ms of them left no difference."""
LEAD_LONG = 5e7
"""The same for 5 inferences of longer models: with one of them the ratio of models of 2.1 and 4.1 ms was 3 % off."""
SEVERAL = 2e7
"""How many ns a block of 3 inferences may take."""
LONG = 2e8
"""From how many ns on an inference is so long that cold caches at its start do not matter. A model of 5 ms that ran
after another one took 3 % longer, and its partner of 3 ms 8 %."""
MakeReplica = Callable[[int], Call]
"""Makes the session of that number and its first inputs, and returns the function that runs it once."""


@dataclass
class Replica:
    """One session: its run function, what it cost to begin with, and the blocks timed so far (ns)."""

    call: Call
    cold_start: float
    first_inference: float
    warm: WarmUp
    blocks: Times = field(default_factory=Times)


@dataclass
class Subject:
    """One model with its replicas. `block_ns` is how long a block should be."""

    make: MakeReplica
    block_ns: float = 4e6
    replicas: list[Replica] = field(default_factory=list)

    def add(self, limit_ns: float) -> Replica:
        """One more session, warmed up for at most `limit_ns`."""
        clock = time.perf_counter_ns
        began = clock()
        call = self.make(len(self.replicas))
        cold = clock() - began
        began = clock()
        call()
        first = clock() - began
        replica = Replica(call, cold, first, warm_up(call, max(0.0, limit_ns - first)))
        self.replicas.append(replica)
        return replica

    def time_block(self, index: int) -> Block:
        """Time one block of replica `index`."""
        replica = self.replicas[index]
        one = max(1.0, replica.warm.time)
        count = int(min(4096, max(self.block_ns // one, min(3, SEVERAL // one), 1)))
        lead_in = max(int(LEAD // one) + 1, int(min(5, LEAD_LONG // one))) if one < LONG else 0
        timed = block(replica.call, count, min(lead_in, 4096))
        replica.blocks.append(timed.times)
        return timed

    @property
    def repeats(self) -> int:
        """Timed inferences so far."""
        return sum(len(b) for r in self.replicas for b in r.blocks)


def value_of(times: Array, what: str) -> float:
    """`p50`, `p90`, `p99` or `mean` (without what the operating system interrupted) of times."""
    if what == "mean":
        return float(times[~outliers(times)].mean())
    return float(np.quantile(times, {"p50": 0.5, "p90": 0.9, "p99": 0.99}[what]))


def interrupted(subject: Subject) -> dict[str, Any]:
    """How many inferences the operating system interrupted, and the mean with them in ms."""
    pools = [np.concatenate(r.blocks[:]) for r in subject.replicas if r.blocks]
    if not pools:
        return {"outliers": 0, "mean_with_outliers": None}
    count = int(sum(outliers(p).sum() for p in pools))
    return {"outliers": count, "mean_with_outliers": float(np.concatenate(pools).mean()) / 1e6}
