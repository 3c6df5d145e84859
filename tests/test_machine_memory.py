"""Memory of this machine and of processes."""

from __future__ import annotations

import mmap
import os
import resource

import pytest

from autoopt.memory import data_size, free_memory, machine_memory, memory_cap, oom_kills, resident, usable_memory

MIB = 1 << 20


def test_resident_grows_with_what_is_touched() -> None:
    # Not from the heap, which may have room for it already.
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        before = resident(os.getpid())
        pages.write(b"x" * len(pages))
        assert resident(os.getpid()) - before > 60 * MIB
    assert resident(2**22 + 1) == 0


def test_machine_memory_is_that_of_this_machine() -> None:
    assert 64 * MIB < machine_memory() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert oom_kills() >= 0


def test_a_limit_of_this_process_counts_as_that_of_a_call() -> None:
    assert usable_memory(None) == machine_memory() // 2
    assert usable_memory(70 * MIB) == 70 * MIB
    limit = data_size() + 50 * MIB
    with memory_cap(limit):
        assert usable_memory(None) == limit
        assert usable_memory(10 * MIB) == 10 * MIB


def test_free_memory_is_what_the_limit_leaves() -> None:
    unlimited = free_memory()
    assert unlimited is not None
    assert 0 < unlimited <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with memory_cap(data_size() + 50 * MIB):
        left = free_memory()
        # Not from the heap, which may have room for it already.
        with mmap.mmap(-1, 20 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
            less = free_memory()
    assert left is not None
    assert less is not None
    assert 45 * MIB < left <= 50 * MIB
    assert less < left - 15 * MIB


def test_cap_holds_within_and_not_after() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_cap(data_size() + 50 * MIB), pytest.raises(MemoryError):
        bytearray(200 * MIB)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(bytearray(200 * MIB)) == 200 * MIB
