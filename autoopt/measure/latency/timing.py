"""Timing one function: blocks of repeats, warm-up found by looking, the timer's own cost taken off."""

from __future__ import annotations

import importlib
import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, overload

import numpy as np

Call: TypeAlias = Callable[[], Any]
Array: TypeAlias = "np.ndarray[Any, Any]"
WINDOW = 3
"""Blocks of calls whose median is compared with that of the blocks before, while warming up."""


@lru_cache(maxsize=1)
def timer_overhead() -> float:
    """What two readings of the clock around nothing differ by, in ns: the median of 2000."""

    def nothing() -> None:
        return None

    return float(np.median(_times(nothing, 2000)))


def _times(call: Call, count: int) -> Array:
    clock = time.perf_counter_ns
    times = [0] * count
    for index in range(count):
        begin = clock()
        call()
        times[index] = clock() - begin
    return np.array(times, np.float64)


@dataclass(frozen=True)
class Presence:
    """Where a thread stands, in ns: of the clock, of its own time on a core; and how often it gave up its core to
    wait for something, and had it taken away."""

    clock: int
    ran: int
    waits: int
    taken: int

    @staticmethod
    def now() -> Presence:
        usage = _RUSAGE() if _RUSAGE else None
        waits, taken = (usage.ru_nvcsw, usage.ru_nivcsw) if usage else (0, 0)
        return Presence(time.monotonic_ns(), time.thread_time_ns(), waits, taken)

    def away(self, later: Presence) -> float:
        """The share of the time until `later` in which this thread was kept from running: others had its core, or the
        host had it. Time that it spent waiting of its own accord, for a device or for its helpers, does not count."""
        spent = later.clock - self.clock
        if spent <= 0 or (later.waits > self.waits and later.taken == self.taken):
            return 0.0
        return max(0.0, 1 - (later.ran - self.ran) / spent)


def _thread_usage() -> Callable[[], Any] | None:
    """What tells a thread's switches, or None where the system does not."""
    try:
        resource = importlib.import_module("resource")
        return lambda: resource.getrusage(resource.RUSAGE_THREAD)
    except (ImportError, AttributeError):
        return None


_RUSAGE = _thread_usage()


@dataclass(frozen=True)
class Block:
    """Times of calls back to back, in ns, and the share of the whole in which the thread was kept from running."""

    times: Array
    away: float = 0.0


class Times(Sequence[Array]):
    """The times of blocks, in memory pages of their own.

    Measuring must not change what is measured: as arrays in the heap they fill the holes in it, and a model that takes
    its memory from there (one without an arena) was 5 % quicker after a hundred kept blocks than by itself.
    """

    PAGE = 1 << 16
    """Values in a page; 512 KiB."""

    def __init__(self) -> None:
        self._pages: list[Array] = []
        self._blocks: list[tuple[int, int, int]] = []
        """Page, first and last value of each."""

    def append(self, times: Array) -> None:
        """Keep a copy of the times of one block, at most `PAGE` of them."""
        page, _, begin = self._blocks[-1] if self._blocks else (-1, 0, self.PAGE)
        if begin + len(times) > self.PAGE:
            page, begin = page + 1, 0
            self._pages.append(np.frombuffer(mmap.mmap(-1, 8 * self.PAGE), np.float64))
        self._blocks.append((page, begin, begin + len(times)))
        self._pages[page][begin : begin + len(times)] = times

    def __len__(self) -> int:
        return len(self._blocks)

    @overload
    def __getitem__(self, number: int) -> Array: ...
    @overload
    def __getitem__(self, number: slice) -> list[Array]: ...
    def __getitem__(self, number: int | slice) -> Array | list[Array]:
        if isinstance(number, slice):
            return [self._pages[page][begin:end] for page, begin, end in self._blocks[number]]
        page, begin, end = self._blocks[number]
        return self._pages[page][begin:end]


def block(call: Call, count: int, lead_in: int) -> Block:
    """`count` calls, less the timer's cost; `lead_in` calls before them are not timed: they bring the caches back
    after another model had them."""
    for _ in range(lead_in):
        call()
    before = Presence.now()
    times = _times(call, count)
    away = before.away(Presence.now())
    return Block(np.maximum(times - timer_overhead(), 1.0), away)


@dataclass(frozen=True)
class WarmUp:
    """How warming up went: calls made, whether times had settled, and the time of one call then, in ns."""

    calls: int
    settled: bool
    time: float


def warm_up(call: Call, limit_ns: float) -> WarmUp:
    """Call until times no longer fall, at most `limit_ns` (but at least once).

    Blocks of doubling length up to about 1 ms are compared: warm-up is over when the median of the last
    `WINDOW` blocks is within 3 % of, or above, that of as many before them.
    """
    began = time.perf_counter_ns()
    times, calls, size = [], 0, 1
    while True:
        spent = _times(call, size)
        calls += size
        times.append(float(np.median(spent)))
        if spent.sum() < 1e6 and size < 256:
            size *= 2
        if len(times) >= 2 * WINDOW:
            last, before = float(np.median(times[-WINDOW:])), float(np.median(times[-2 * WINDOW : -WINDOW]))
            if last >= 0.97 * before:
                return WarmUp(calls, True, last)
        if time.perf_counter_ns() - began > limit_ns:
            return WarmUp(calls, False, min(times[-WINDOW:]))


def outliers(times: Array) -> Array:
    """Which times of a block the operating system made: above 3 times the median and 20 median deviations away."""
    middle = float(np.median(times))
    deviation = float(np.median(np.abs(times - middle))) * 1.4826
    return np.asarray(times > max(3 * middle, middle + 20 * deviation))
