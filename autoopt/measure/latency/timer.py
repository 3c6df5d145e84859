"""Timing one model: its sessions, warm-up by observation, and blocks of repeated calls less the timer's own cost.

Two sessions of one model in one process differ by up to a few percent for as long as they live, depending on where
their weights and buffers lie. So a model is measured in several sessions, and the spread between sessions is part of
the interval; repeats in one session would never show it. All times are in nanoseconds.
"""

from __future__ import annotations

import importlib
import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol, TypeAlias, overload

import numpy as np

from autoopt.model.model_file import ModelFile
from autoopt.tuning import TIMING

Call: TypeAlias = Callable[[], object]


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


@lru_cache(maxsize=1)
def _core_overhead() -> float:
    """Measure what the CPU clock shows around two readings of the other clock, in ns: the median of 2000."""
    return float(np.median(_times_on_core(lambda: None, 2000)[1]))


def _times(call: Call, count: int) -> np.ndarray:
    clock = time.perf_counter_ns
    times = [0] * count
    for index in range(count):
        begin = clock()
        call()
        times[index] = clock() - begin
    return np.array(times, np.float64)


def _times_on_core(call: Call, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Time calls by the clock, and by the CPU time of this thread."""
    clock, core_clock = time.perf_counter_ns, time.thread_time_ns
    times, core_times = [0] * count, [0] * count
    for index in range(count):
        begin_on_core = core_clock()
        begin = clock()
        call()
        times[index] = clock() - begin
        core_times[index] = core_clock() - begin_on_core
    return np.array(times, np.float64), np.array(core_times, np.float64)


@dataclass(frozen=True)
class ThreadUsage:
    """A snapshot of a thread's use of its core. Times are in ns."""

    clock: int
    cpu_time: int
    voluntary_switches: int
    """Times that the thread gave up its core to wait for something."""
    involuntary_switches: int
    """Times that the scheduler took the core away."""
    helper_switches: int = 0
    """Times that it took a core away from other threads of this process."""

    @staticmethod
    def now() -> ThreadUsage:
        clock, cpu_time = time.monotonic_ns(), time.thread_time_ns()
        if _usage is None:
            return ThreadUsage(clock, cpu_time, 0, 0)
        own, all_threads = _usage()
        helper_switches = all_threads.ru_nivcsw - own.ru_nivcsw
        return ThreadUsage(clock, cpu_time, own.ru_nvcsw, own.ru_nivcsw, helper_switches)

    def waited(self, later: ThreadUsage) -> bool:
        """Tell if the thread gave up its core until `later`, to wait for a device or for its helper threads."""
        return later.voluntary_switches > self.voluntary_switches

    def preempted_share(self, later: ThreadUsage) -> float:
        """Compute the share of the time until `later` in which others (or the host) had the thread's core.

        Time that the thread spent waiting of its own accord, for a device or for its helper threads, does not count.
        The share is 0 on systems whose CPU clock is too coarse to tell.
        """
        if not _has_fine_core_clock():
            return 0.0
        elapsed = later.clock - self.clock
        preempted = later.involuntary_switches > self.involuntary_switches
        if elapsed <= 0 or (self.waited(later) and not preempted):
            return 0.0
        return max(0.0, 1 - (later.cpu_time - self.cpu_time) / elapsed)


def _find_usage() -> Callable[[], tuple[_Usage, _Usage]] | None:
    """Find the system calls that count switches of this thread and process; None where there is none for a thread."""
    try:
        resource = importlib.import_module("resource")
        thread, process = resource.RUSAGE_THREAD, resource.RUSAGE_SELF
    except (ImportError, AttributeError):
        return None
    return lambda: (resource.getrusage(thread), resource.getrusage(process))


_usage = _find_usage()


def helper_waits() -> int:
    """Count how often other threads of this process have given up their core to wait; 0 if the system cannot tell."""
    if _usage is None:
        return 0
    own, all_threads = _usage()
    return all_threads.ru_nvcsw - own.ru_nvcsw


@dataclass(frozen=True)
class Block:
    """Times of back-to-back calls in ns."""

    wall: np.ndarray
    on_core: np.ndarray
    """Times in which the thread had its core: what the calls take on a machine that nobody else uses. The same array as
    `wall` if the system cannot tell, or in blocks of many calls."""
    preempted: float = 0.0
    """Share of the block in which others had the thread's core."""
    switches: int = 0
    """Number of times that the scheduler took the core away."""
    helper_switches: int = 0
    """Number of times that it took a core away from other threads of the process, which the model may run on."""
    waited: bool = False
    """True if the thread waited for a device or for other threads. Then `on_core` lacks a part of each call."""

    @property
    def has_core_times(self) -> bool:
        """True if `on_core` was measured, rather than taken from `wall`."""
        return self.on_core is not self.wall


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
    """Time `count` calls, less the timers' cost.

    `lead_in` calls before them are not timed: they refill the caches after another model has used them.
    """
    for _ in range(lead_in):
        call()
    before = ThreadUsage.now()
    if count > TIMING.many_calls or not can_time_on_core():
        wall = on_core = np.maximum(_times(call, count) - timer_overhead(), 1.0)
    else:
        wall, on_core = _times_on_core(call, count)
        wall = np.maximum(wall - timer_overhead(), 1.0)
        on_core = np.maximum(on_core - _core_overhead(), 1.0)
    after = ThreadUsage.now()
    return Block(
        wall,
        on_core,
        preempted=before.preempted_share(after),
        switches=after.involuntary_switches - before.involuntary_switches,
        helper_switches=after.helper_switches - before.helper_switches,
        waited=before.waited(after),
    )


def can_time_on_core() -> bool:
    """Tell if a call can be timed on the core: with a fine CPU clock, and only where the system says if it waited."""
    return _usage is not None and _has_fine_core_clock()


@lru_cache(maxsize=1)
def _has_fine_core_clock() -> bool:
    """Tell if a thread's CPU clock advances from one reading to the next.

    The resolution that a system states says little: Windows states 100 ns and advances its clock every 16 ms.
    """
    readings = [time.thread_time_ns() for _ in range(200)]
    return float(np.median(np.diff(readings))) > 0


@dataclass(frozen=True)
class WarmUp:
    """The result of warming up: number of calls, and the time of one call at the end in ns."""

    calls: int
    settled: bool
    """True if times no longer fell; false if the time limit ended the warm-up."""
    time: float


def warm_up(call: Call, limit_ns: float) -> WarmUp:
    """Call until times no longer fall, for at most `limit_ns` (but at least once).

    Blocks of doubling length up to about 1 ms are compared. Warm-up ends when the median of the last `TIMING.window`
    blocks is at least 97 % of the median of the `TIMING.window` blocks before.
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
        if len(medians) >= 2 * TIMING.window:
            last = float(np.median(medians[-TIMING.window :]))
            before = float(np.median(medians[-2 * TIMING.window : -TIMING.window]))
            if last >= 0.97 * before:
                return WarmUp(calls, True, last)
        if time.perf_counter_ns() - began > limit_ns:
            return WarmUp(calls, False, min(medians[-TIMING.window :]))


def outliers(times: np.ndarray) -> np.ndarray:
    """Mark the times that the operating system caused: above 3 medians and 20 median absolute deviations away."""
    median = float(np.median(times))
    # 1.4826 scales the median absolute deviation to the standard deviation of a normal distribution.
    deviation = float(np.median(np.abs(times - median))) * 1.4826
    return np.asarray(times > max(3 * median, median + 20 * deviation))


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
        count = int(
            max(TIMING.block_ns // inference_ns, min(TIMING.block_calls, TIMING.long_block_ns // inference_ns), 1)
        )
        lead_in = 0
        if inference_ns < TIMING.long_ns:
            lead_in = max(
                int(self.lead_ns // inference_ns) + 1, int(min(TIMING.lead_calls, TIMING.long_lead_ns // inference_ns))
            )
        return time_block(replica.call, min(count, TIMING.largest_block), min(lead_in, TIMING.largest_block))

    def close_sessions(self) -> None:
        """Let go of all sessions; what was timed stays."""
        for replica in self.replicas:
            replica.call = _closed


def _closed() -> object:
    raise AssertionError("the session is closed")


SubjectOf: TypeAlias = Callable[[ModelFile], Subject]
"""Makes the subject of a model."""
