"""The certainty of a ratio of times beside other programs. Imports no numeric library.

Programs share caches and memory, so every inference takes longer beside other programs, and a smaller model suffers
less. Leaving out preempted inferences does not correct this, nor does repetition. A ratio on several threads is
measured in two ways: by the clock, and on one thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoopt import json_codec
from autoopt.json_codec import JsonValue
from autoopt.metrics import NORMAL, Estimate
from autoopt.tuning import TIMING

DETAIL = "one_thread"
"""The entry of a measurement's details with both ratios."""
CONTENTION = "contention"
"""The entry with its contention."""
UNIFORM = 12**-0.5
"""Standard deviation of a uniform distribution, relative to its width."""


def contention(runnable: float, cores: int) -> float:
    """Estimate the contention beside a number of runnable threads of other programs."""
    return TIMING.doubling * math.log2(1 + runnable / cores)


def error_of(ratio: float, contention: float) -> float:
    """Estimate the standard deviation, in logarithms, of the lasting error of a positive ratio."""
    return math.hypot(TIMING.other_loop, contention) * (1 - min(ratio, 1 / ratio))


def on_several_threads(on_one_thread: Estimate) -> Estimate:
    """Expect the ratio on several threads from that on one."""
    if on_one_thread.value >= 1:
        return on_one_thread
    low, value, high = on_one_thread.low, on_one_thread.value, on_one_thread.high
    return Estimate(value**TIMING.shared_gain, low**TIMING.shared_gain, high**TIMING.shared_gain)


@dataclass(frozen=True)
class TwoRatios:
    """The ratio of one candidate to the source, measured in two ways.

    The store has what was measured. What that means for several threads is computed when it is read.
    """

    by_clock: Estimate
    """On the threads that were asked for, by the clock."""
    on_one_thread: Estimate
    """By CPU time."""
    disturbance: float = TIMING.disturbance
    """Error of the first one beyond its interval."""
    contention: float = 0.0
    """Error of the second one because of shared caches."""
    thread_factor: float = 1.0
    """Threads of the source for each of the candidate's."""
    is_rate: bool = False
    """True for ratios of rates, which gain above 1."""
    is_serial: bool = False
    """True if neither model shares out work among threads: both ratios are then of the same kind."""
    has_free_cores: bool = False
    """True if other programs gave way while the first one was measured. Of models in a program beside them, threads
    share the cores, which leaves the second one: int8 models of 0.05 ms had 0.69 and 0.46. The ratio to tell is
    anything between both."""

    @staticmethod
    def of(details: Mapping[str, JsonValue]) -> TwoRatios | None:
        """Read the entry of a measurement's details; None without one."""
        entry = details.get(DETAIL)
        return None if entry is None else json_codec.from_json(TwoRatios, entry)

    def inverse(self) -> TwoRatios:
        """The same for a rate instead of a time."""
        by_clock, on_one_thread = self.by_clock.inverse(), self.on_one_thread.inverse()
        return replace(self, by_clock=by_clock, on_one_thread=on_one_thread, is_rate=not self.is_rate)

    @property
    def expected(self) -> Estimate:
        """The ratio on several threads that the one on one thread lets expect."""
        if self.is_rate:
            return self.inverse().expected.inverse()
        ratio = self.on_one_thread
        if self.has_free_cores and self.thread_factor != 1:
            shorter = math.exp(math.copysign(TIMING.overhead, -math.log(self.thread_factor)))
            return Estimate(ratio.value * shorter, ratio.low * shorter, ratio.high * shorter)
        if self.is_serial or self.has_free_cores:
            return ratio
        if self.thread_factor == 1:
            return on_several_threads(ratio)
        # Beside other programs, more threads help anything from not at all to as much as on a quiet machine.
        half = math.sqrt(self.thread_factor)
        return Estimate(ratio.value * half, ratio.low * half, ratio.high * half)

    @property
    def difference(self) -> float:
        """Error beyond the intervals that stays the same: of the expected ratio, or with free cores of `middle`."""
        if self.has_free_cores:
            return UNIFORM * abs(math.log(self.by_clock.value / self.expected.value))
        if self.is_serial:
            return self.contention
        return math.hypot(TIMING.difference, self.contention, UNIFORM * math.log(self.thread_factor))

    @property
    def middle(self) -> Estimate:
        """The ratio halfway between both, with the errors of the measurements."""
        overhead = 0.0 if self.thread_factor == 1 else TIMING.overhead
        clock, thread = self.by_clock, self.expected.with_log_error(math.hypot(self.contention, overhead))
        value = math.sqrt(clock.value * thread.value)
        error = math.hypot(clock.log_deviation, thread.log_deviation) / 2
        return Estimate(value, value, value).with_log_error(error)

    def combined(self) -> Estimate:
        """Weight both by what they tell about one candidate against another.

        The interval is that of the ratio to the source. Both may err in the same direction.
        """
        if self.has_free_cores:
            return self.middle.with_log_error(self.difference)
        clock_variance = self.by_clock.log_deviation**2 + self.disturbance**2
        expected = self.expected
        thread_variance = expected.log_deviation**2 + self.difference**2
        own_variance = thread_variance - TIMING.common * self.difference**2
        share = own_variance / (clock_variance + own_variance)
        middle = share * math.log(self.by_clock.value) + (1 - share) * math.log(expected.value)
        half_width = NORMAL * (share * math.sqrt(clock_variance) + (1 - share) * math.sqrt(thread_variance))
        return Estimate(math.exp(middle), math.exp(middle - half_width), math.exp(middle + half_width))
