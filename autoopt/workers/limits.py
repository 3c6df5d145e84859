"""Memory: how much there is, how much a process has, and how it is capped.

The cap is on private writable memory (RLIMIT_DATA): onnxruntime and numpy reserve far more address space than they
ever use, so a cap on address space would fail ordinary work. What that does not count (shared memory) the pool sees
in the resident set.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROMISE = 5.0
"""Seconds within which a worker is gone after its limit, a cancellation or the end of its pool."""
RESIDENT_SLACK = 1.1
"""A worker is killed when its resident set is beyond the cap times this."""


def machine_memory() -> int:
    """Bytes of memory of this machine or of the control group that we live in, whichever is less."""
    amounts = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            amounts.append(int(Path("/sys/fs/cgroup", name).read_text()))
    return min(amounts)


def resident(pid: int) -> int:
    """The resident set of a process in bytes; 0 where it cannot be told."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def data_size() -> int:
    """This process's private writable memory in bytes, what RLIMIT_DATA counts; 0 where it cannot be told."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started; 0 where it cannot be told."""
    with suppress(OSError, ValueError), open("/proc/vmstat", encoding="ascii") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


@contextmanager
def memory_cap(memory: int | None) -> Iterator[None]:
    """Within: this process and those it starts may have `memory` bytes each; None means no cap."""
    if not memory or sys.platform != "linux":
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (memory if hard < 0 else min(memory, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
