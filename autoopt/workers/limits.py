"""The memory cap of a process, and the load of the machine.

The cap applies to private writable memory (RLIMIT_DATA): onnxruntime and numpy reserve far more address space than they
ever use, so a cap on address space would fail ordinary work. Shared memory is not counted by it; the pool sees that in
the resident set.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

KILL_SECONDS = 5.0
"""A worker is gone within this time after its limit or the end of its pool."""
RESIDENT_SLACK = 1.1
"""A worker is killed when its resident set exceeds the cap times this."""
FULL_IDLE_SHARE = 0.1
"""Share of idle CPU time below which the machine counts as full."""
OTHERS_SHARE = 0.25
"""Share of the CPU time that others take on a full machine from which a call counts as slowed down by them."""


def oom_kills() -> int:
    """Number of processes that the kernel has killed since it started, to free memory; 0 if unknown."""
    with suppress(OSError, ValueError), open("/proc/vmstat", encoding="ascii") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


@dataclass(frozen=True)
class MachineLoad:
    """CPU time of this machine and of one process since some start, in seconds."""

    idle: float
    total: float
    """Of all cores; 0 if unknown."""
    process: float

    @staticmethod
    def now(pid: int) -> MachineLoad:
        """The load now; `pid` is the process to set apart."""
        ticks = [0.0] * 8
        with suppress(OSError, ValueError), open("/proc/stat", encoding="ascii") as file:
            ticks = list(map(float, file.readline().split()[1:9]))
        own_ticks = 0.0
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
            own_ticks = float(user) + float(system)
        rate = float(os.sysconf("SC_CLK_TCK"))
        return MachineLoad((ticks[3] + ticks[4]) / rate, sum(ticks) / rate, own_ticks / rate)

    def disturbed_since(self, before: MachineLoad) -> bool:
        """True if no core was free since `before`, and not only because of the process itself."""
        total = self.total - before.total
        if total <= 0:
            return False
        idle = self.idle - before.idle
        others = total - idle - (self.process - before.process)
        return idle < FULL_IDLE_SHARE * total and others > OTHERS_SHARE * total


@contextmanager
def memory_cap(memory: int | None) -> Iterator[None]:
    """Limit this process, and each process it starts meanwhile, to `memory` bytes; no limit for None or 0."""
    if not memory or sys.platform != "linux":
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard >= 0:  # negative: unlimited
        memory = min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
