"""Memory of this machine, what processes use of it, and the cap on it.

The cap applies to private writable memory (RLIMIT_DATA): onnxruntime and numpy reserve far more address space than they
ever use, so a cap on address space would fail ordinary work. Shared memory is not counted by it; the pool of workers
sees that in the resident set.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_RESIDENT, _DATA = 1, 5
"""Columns of /proc/PID/statm."""


def machine_memory() -> int:
    """Bytes of memory of this machine or of the control group of this process, whichever is smaller."""
    amounts = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            amounts.append(int(Path("/sys/fs/cgroup", name).read_text()))
    return min(amounts)


def usable_memory(limit: int | None) -> int:
    """Bytes of memory of a call with this limit; None for the default limit, half of the memory of this machine."""
    amounts = [limit or machine_memory() // 2]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        own_limit, _ = resource.getrlimit(kind)
        if own_limit >= 0:  # negative: unlimited
            amounts.append(own_limit)
    return min(amounts)


def free_memory() -> int | None:
    """Bytes that this process may still allocate: within its limit, and before the machine is full; None if unknown."""
    amounts = []
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit >= 0:  # negative: unlimited
        amounts.append(limit - data_size())
    with suppress(OSError, ValueError, IndexError):
        _, _, available = Path("/proc/meminfo").read_text("ascii").partition("MemAvailable:")
        amounts.append(int(available.split()[0]) << 10)
    return min(amounts, default=None)


def return_unused() -> None:
    """Collect garbage, and return what is free then to the system.

    Libraries leave whole models in reference cycles, and glibc keeps freed blocks of up to 32 MB.
    """
    gc.collect()
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):  # glibc
            libc.malloc_trim(0)


def resident(pid: int) -> int:
    """The resident set of a process in bytes; 0 if unknown."""
    return _statm(str(pid), _RESIDENT)


def data_size() -> int:
    """This process's private writable memory in bytes, as counted by RLIMIT_DATA; 0 if unknown."""
    return _statm("self", _DATA)


def _statm(process: str, column: int) -> int:
    try:
        with open(f"/proc/{process}/statm", encoding="ascii") as file:
            return int(file.read().split()[column]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def oom_kills() -> int:
    """Number of processes that the kernel has killed since it started, to free memory; 0 if unknown."""
    with suppress(OSError, ValueError), open("/proc/vmstat", encoding="ascii") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


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
