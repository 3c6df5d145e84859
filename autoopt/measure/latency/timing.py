"""Timing one function: blocks of repeated calls, warm-up by observation, the timer's own cost subtracted.

All times are in nanoseconds.
"""

from __future__ import annotations

import importlib
import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeAlias, overload

import numpy as np

Call: TypeAlias = Callable[[], object]
WINDOW = 3
"""Blocks whose median is compared with the median of as many blocks before, while warming up."""


class _Usage(Protocol):
    """The fields of `resource.getrusage` that count context switches."""

    ru_nvcsw: int
    ru_nivcsw: int


@lru_cache(maxsize=1)
def timer_overhead() -> float:
    """Measure the difference of two readings of the clock around nothing, in ns: the median of 2000."""

    def nothing() -> None:
        return None

    return float(np.median(_times(nothing, 2000)))


def _times(call: Call, count: int) -> np.ndarray:
    clock = time.perf_counter_ns
    times = [0] * count
    for index in range(count):
        begin = clock()
        call()
        times[index] = clock() - begin
    return np.array(times, np.float64)


@dataclass(frozen=True)
class ThreadUsage:
    """A snapshot of a thread's use of its core. Times are in ns."""

    clock: int
    cpu_time: int
    voluntary_switches: int
    """Times that the thread gave up its core to wait for something."""
    involuntary_switches: int
    """Times that the scheduler took the core away."""

    @staticmethod
    def now() -> ThreadUsage:
        usage = _thread_usage() if _thread_usage else None
        switches = (usage.ru_nvcsw, usage.ru_nivcsw) if usage else (0, 0)
        return ThreadUsage(time.monotonic_ns(), time.thread_time_ns(), *switches)

    def preempted_share(self, later: ThreadUsage) -> float:
        """Compute the share of the time until `later` in which others (or the host) had the thread's core.

        Time that the thread spent waiting of its own accord, for a device or for its helper threads, does not count.
        """
        elapsed = later.clock - self.clock
        waited = later.voluntary_switches > self.voluntary_switches
        preempted = later.involuntary_switches > self.involuntary_switches
        if elapsed <= 0 or (waited and not preempted):
            return 0.0
        return max(0.0, 1 - (later.cpu_time - self.cpu_time) / elapsed)


def _find_thread_usage() -> Callable[[], _Usage] | None:
    """Find the system call that counts a thread's switches; None where the system has none."""
    try:
        resource = importlib.import_module("resource")
        who = resource.RUSAGE_THREAD
    except (ImportError, AttributeError):
        return None

    def usage() -> _Usage:
        snapshot: _Usage = resource.getrusage(who)
        return snapshot

    return usage


_thread_usage = _find_thread_usage()


@dataclass(frozen=True)
class Block:
    """Times of back-to-back calls in ns, and the share of the whole in which the thread was preempted."""

    times: np.ndarray
    preempted: float = 0.0


class BlockTimes(Sequence[np.ndarray]):
    """The times of many blocks, in memory pages of their own.

    Measuring must not change what is measured. Arrays on the heap fill the holes in it, and a model that allocates
    there (one without an arena) was 5 % faster after a hundred stored blocks than on its own.
    """

    PAGE = 1 << 16
    """Values in a page; 512 KiB."""

    def __init__(self) -> None:
        self._pages: list[np.ndarray] = []
        self._spans: list[tuple[int, int, int]] = []
        """Page, first value and end of each block."""

    def append(self, times: np.ndarray) -> None:
        """Store a copy of the times of one block, at most `PAGE` of them."""
        page, _, begin = self._spans[-1] if self._spans else (-1, 0, self.PAGE)
        if begin + len(times) > self.PAGE:
            page, begin = page + 1, 0
            self._pages.append(np.frombuffer(mmap.mmap(-1, 8 * self.PAGE), np.float64))
        self._spans.append((page, begin, begin + len(times)))
        self._pages[page][begin : begin + len(times)] = times

    def __len__(self) -> int:
        return len(self._spans)

    @overload
    def __getitem__(self, number: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, number: slice) -> list[np.ndarray]: ...
    def __getitem__(self, number: int | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(number, slice):
            return [self._pages[page][begin:end] for page, begin, end in self._spans[number]]
        page, begin, end = self._spans[number]
        return self._pages[page][begin:end]


def time_block(call: Call, count: int, lead_in: int) -> Block:
    """Time `count` calls, less the timer's cost.

    `lead_in` calls before them are not timed: they refill the caches after another model has used them.
    """
    for _ in range(lead_in):
        call()
    before = ThreadUsage.now()
    times = _times(call, count)
    preempted = before.preempted_share(ThreadUsage.now())
    return Block(np.maximum(times - timer_overhead(), 1.0), preempted)


@dataclass(frozen=True)
class WarmUp:
    """The result of warming up: number of calls, and the time of one call at the end in ns."""

    calls: int
    settled: bool
    """True if times no longer fell; false if the time limit ended the warm-up."""
    time: float


def warm_up(call: Call, limit_ns: float) -> WarmUp:
    """Call until times no longer fall, for at most `limit_ns` (but at least once).

    Blocks of doubling length up to about 1 ms are compared. Warm-up ends when the median of the last `WINDOW` blocks
    is at least 97 % of the median of the `WINDOW` blocks before.
    """
    began = time.perf_counter_ns()
    medians: list[float] = []
    calls, size = 0, 1
    while True:
        times = _times(call, size)
        calls += size
        medians.append(float(np.median(times)))
        if times.sum() < 1e6 and size < 256:
            size *= 2
        if len(medians) >= 2 * WINDOW:
            last = float(np.median(medians[-WINDOW:]))
            before = float(np.median(medians[-2 * WINDOW : -WINDOW]))
            if last >= 0.97 * before:
                return WarmUp(calls, True, last)
        if time.perf_counter_ns() - began > limit_ns:
            return WarmUp(calls, False, min(medians[-WINDOW:]))


def outliers(times: np.ndarray) -> np.ndarray:
    """Mark the times that the operating system caused: above 3 medians and 20 median absolute deviations away."""
    median = float(np.median(times))
    # 1.4826 scales the median absolute deviation to the standard deviation of a normal distribution.
    deviation = float(np.median(np.abs(times - median))) * 1.4826
    return np.asarray(times > max(3 * median, median + 20 * deviation))
