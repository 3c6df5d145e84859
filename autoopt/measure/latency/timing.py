"""The second room: interleaved blocks of source and candidates, in stages, until their ratios are certain."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from autoopt.measure.latency import timer
from autoopt.measure.latency.busy import (
    OtherPrograms,
    clock_settings,
    cpu_settings,
    is_serial,
    needs_one_thread,
    on_one_thread,
    width_beside,
)
from autoopt.measure.latency.estimate import CallTimes, Comparison, StopReason, ThreadTimes, Times
from autoopt.measure.latency.load import Load
from autoopt.measure.latency.pairs import Pair, disturbed_share, preempted_share
from autoopt.measure.latency.prepare import Prepared, TimedCall
from autoopt.measure.latency.subjects import LEAD_LONG, Subject
from autoopt.measure.latency.throughput import throughput_table
from autoopt.measure.settings import MeasurementSettings
from autoopt.measure.two_ratios import error_of
from autoopt.tuning import TIMING

WIDE, PAIRS_IF_WIDE, PAIRS = 0.1, 6, 12
"""Relative width from which an interval is wide, and the fewest pairs of a wide interval and of others."""
HOPELESS, HOPELESS_WHERE_BUSY = 1.5, 2.0
"""Factors to the best candidate so far from which a look at one session of each model is enough to give a candidate
up, on a quiet machine and beside other programs. Sessions differ by 1 to 3 %, a few by a quarter for as long as they
live. Beside ten busy processes, a ratio of 1.33 of models on two threads looked like 1.3 to 2.0."""
FIRST_SHARE, NEXT_SHARE = 0.02, 0.01
"""Shares of the time for warming up the first and each further session."""


def time_models(prepared: Prepared, *, one_thread: bool) -> Times:
    """Time all models in turns: by the clock first, then on one thread, in sessions that are not open at once.

    With `one_thread`, that is done where other programs disturb models on several.
    """
    request, others = prepared.request, OtherPrograms.of(prepared.request)
    inference, *generation = prepared.calls
    uses_one_thread = one_thread and not prepared.source_refusal
    settings = request.settings
    if uses_one_thread:
        settings = clock_settings(request, busy=others.are_busy)
    measurements = [_time_in_turns(prepared, inference, settings, others)]
    seconds = request.settings.seconds / (2 * len(request.models))
    tables = []
    for number, comparison in enumerate(measurements[0].comparisons):
        tables.append(throughput_table(request.alone(number), comparison.candidate, comparison.source, seconds))
    load, machine = others.end()
    settings = clock_settings(request, busy=load.busy and uses_one_thread)
    # The prompts had as many sessions as there was time to open.
    settings = replace(settings, incumbent_ratio=None, replicas=prepared.runners.replicas or settings.replicas)
    measurements += [_time_in_turns(prepared, call, settings, others) for call in generation]
    for measurement in measurements:
        measurement.close_sessions()
    prepared.runners.close()
    times = []
    for call, measurement in zip(prepared.calls, measurements, strict=True):
        one_thread_times: list[ThreadTimes | None] = [None] * len(request.models)
        if uses_one_thread:
            one_thread_times = _time_on_one_thread(prepared, call, measurement, load)
        stopped, seconds = measurement.stopped, measurement.seconds
        times.append(CallTimes(call.metric, measurement.comparisons, stopped, seconds, one_thread_times))
    return Times(times, tables, load, machine)


def _time_in_turns(
    prepared: Prepared, call: TimedCall, settings: MeasurementSettings, others: OtherPrograms
) -> Measurement:
    """Time a call of all models, and of the source too unless each of them is the source."""
    request, subject_of, source = prepared.request, call.subject_of, None
    if request.source is not None and all(map(request.source.same_as, request.models)):
        subject_of = call.source_subject_of
    elif request.source is not None and not prepared.source_refusal:
        source = call.source_subject_of(request.source)
    comparisons = [Comparison(subject_of(model), source, seed=settings.seed) for model in request.models]
    return Measurement(comparisons, settings, request.brief, others).run()


def _time_on_one_thread(
    prepared: Prepared, call: TimedCall, measurement: Measurement, load: Load
) -> list[ThreadTimes | None]:
    """Time on one thread, beside the source, the models whose ratio by the clock is uncertain.

    Models that share out no work among threads keep their own session options.
    """
    request, source = prepared.request, prepared.request.source
    times: list[ThreadTimes | None] = [None] * len(request.models)
    numbers: dict[bool, list[int]] = {True: [], False: []}
    for number, (model, comparison) in enumerate(zip(request.models, measurement.comparisons, strict=True)):
        by_clock = comparison.estimate() if comparison.source is not None else None
        if not needs_one_thread(request, model, by_clock, stopped=measurement.stopped, load=load):
            continue
        are_serial = False
        if source is not None and comparison.source is not None:
            are_serial = is_serial(call.subject_of, source, comparison.source)
            are_serial = are_serial and is_serial(call.subject_of, model, comparison.candidate)
        if not (are_serial and load.gave_way):  # serial ones need no further core
            numbers[are_serial].append(number)
    for are_serial, chosen in numbers.items():
        if not chosen or source is None:
            continue
        reference = call.source_subject_of(source if are_serial else on_one_thread(source))
        comparisons = []
        for number in chosen:
            model = request.models[number]
            candidate = call.subject_of(model if are_serial else on_one_thread(model))
            comparisons.append(Comparison(candidate, reference, seed=request.settings.seed))
            times[number] = ThreadTimes(comparisons[-1], are_serial)
        Measurement(comparisons, cpu_settings(request.settings), request.brief).run()
    return times


@dataclass
class Measurement:
    """One measurement under way: one or more candidates, each compared with the same source.

    In each round every model is timed for one block, in random order, so that a disturbance meets all of them.
    """

    comparisons: list[Comparison]
    """At least one, all with the same source."""
    settings: MeasurementSettings
    brief: bool = False
    """One of several measurements of these models: opening sessions takes at most as long as timing them."""
    others: OtherPrograms = field(default_factory=OtherPrograms)
    stopped: StopReason = "time"
    seconds: float = 0.0
    _look_rounds: int = field(init=False, default=0)
    """Rounds in which the first sessions were timed again, because the first one promised nothing."""
    _subjects: list[Subject] = field(init=False)

    def __post_init__(self) -> None:
        self._subjects = [comparison.candidate for comparison in self.comparisons]
        source = self.comparisons[0].source
        if source is not None:
            self._subjects.append(source)

    def run(self) -> Measurement:
        """Measure until the settings are satisfied."""
        rng = random.Random(self.settings.seed)
        began = time.monotonic()
        collects_garbage = gc.isenabled()
        gc.disable()
        try:
            with self.others.noted():
                for index in self._schedule(began):
                    self._time_round(index, rng)
                    self.seconds = time.monotonic() - began
                    reason = self._stop_reason()
                    if reason is not None:
                        self.stopped = reason
                        break
        finally:
            if collects_garbage:
                gc.enable()
        return self

    def close_sessions(self) -> None:
        """Let go of the sessions of all models, whose memory further measurements need."""
        for subject in self._subjects:
            subject.close_sessions()

    @property
    def replicas(self) -> int:
        """Number of sessions of each model."""
        return self.comparisons[0].replicas

    @property
    def rounds(self) -> int:
        """Number of rounds so far."""
        return len(self.comparisons[0].pairs)

    def _schedule(self, began: float) -> Iterator[int]:
        """Yield replica numbers: in the first round with a new session of each model, then all of them in turn."""
        self._add_replicas(FIRST_SHARE)
        yield 0
        first, incumbent = self.comparisons[0].pairs[0], self._incumbent_ratio
        is_hopeless = incumbent is not None and first.candidate / first.source > incumbent * HOPELESS
        if is_hopeless and not self.settings.fixed:
            # A second look at the same sessions tells more cheaply than further sessions.
            self._look_rounds = TIMING.fewest_pairs - 1
            yield from [0] * self._look_rounds
        replicas = self._affordable_replicas(time.monotonic() - began)
        for comparison in self.comparisons:
            comparison.replicas = replicas
        if replicas == 1:
            self._look_rounds = 0
        for index in range(1, replicas):
            self._add_replicas(NEXT_SHARE)
            yield index
        while True:
            yield from range(replicas)

    def _add_replicas(self, share: float) -> None:
        # The session that opens first may get the better memory, so the models take turns.
        turn = (self.settings.seed + len(self._subjects[0].replicas)) % len(self._subjects)
        for subject in (*self._subjects[turn:], *self._subjects[:turn]):
            replica = subject.add_replica(share * self.settings.seconds * 1e9)
            self.others.keep_if_long(replica.warm.time / 1e9)
        self.others.include_helpers()

    def _affordable_replicas(self, elapsed: float) -> int:
        """Compute how many replicas there is time for: each needs its sessions and three rounds."""
        session_ns = warm_up_ns = round_ns = 0.0
        for subject in self._subjects:
            first = subject.replicas[0]
            session_ns += subject.opening_ns
            warm_up_ns += first.warm.calls * first.warm.time
            round_ns += float(first.blocks[0].sum()) + max(subject.lead_ns, min(2 * first.warm.time, LEAD_LONG))
        remaining_ns = max(0.0, self.settings.seconds - elapsed) * 1e9
        by_rounds = 1 + remaining_ns / (TIMING.fewest_pairs * round_ns)
        if self.brief:
            by_sessions = 1 + self._fewest_pairs * round_ns / (session_ns + warm_up_ns)
        else:
            longest_ns = len(self._subjects) * NEXT_SHARE * self.settings.seconds * 1e9
            by_sessions = 1 + 0.5 * remaining_ns / (session_ns + longest_ns)
        return int(min(self.settings.replicas, by_sessions, by_rounds))

    def _time_round(self, index: int, rng: random.Random) -> None:
        """Time a block of each model in replica `index`."""
        blocks = {}
        for number in rng.sample(range(len(self._subjects)), len(self._subjects)):
            with self.others.behind_this_thread():
                blocks[number] = self._subjects[number].time_block(index)
        # A thread that waits for its helpers or a device is not on its core for the whole inference.
        on_core = timer.can_time_on_core() and not any(block.waited for block in blocks.values())
        single: dict[int, Pair] = {}
        for number, block in blocks.items():
            times = block.on_core if on_core else block.wall
            self._subjects[number].replicas[index].blocks.append(times)
            disturbed = disturbed_share(block, on_core=on_core)
            preempted = preempted_share(block, on_core=on_core)
            single[number] = Pair(index, float(np.median(times)), disturbed=disturbed, preempted=preempted)
        source = single.get(len(self.comparisons))
        for number, comparison in enumerate(self.comparisons):
            comparison.pairs.append(single[number].beside(source) if source else single[number])

    def _stop_reason(self) -> StopReason | None:
        limit = self._limit_reason()
        if limit is not None or self.settings.fixed:
            return limit
        # At first the estimates are worth a look after each round, then once per replica.
        rounds = self.rounds - self._look_rounds
        is_checkpoint = rounds >= TIMING.fewest_pairs
        if rounds > self.replicas:
            is_checkpoint = rounds % max(self.replicas, TIMING.fewest_pairs) == 0
        load, incumbent = self.others.load(), self._incumbent_ratio
        if incumbent is not None and (is_checkpoint or self.rounds == TIMING.fewest_pairs):
            lowest = self.comparisons[0].estimate().low
            if lowest > incumbent * (HOPELESS_WHERE_BUSY if load.busy else HOPELESS):
                return "hopeless"
            if is_checkpoint and lowest > incumbent * self.settings.margin:
                return "worse"
        if not is_checkpoint:
            return None
        reasons = [self._width_reason(comparison, load) for comparison in self.comparisons]
        if None in reasons:
            return None
        return "no narrower" if "no narrower" in reasons else "narrow"

    def _limit_reason(self) -> StopReason | None:
        # Fewer rounds say nothing, so a slow model gets twice the time for them.
        seconds = self.settings.seconds * (1 if self.rounds >= TIMING.fewest_pairs else 2)
        if self.rounds < PAIRS_IF_WIDE:
            # Sessions that took longer to open are worth as much time again: to open 4.4 GB took 20 s, a pair 3 s.
            replicas = [replica for subject in self._subjects for replica in subject.replicas]
            seconds = max(seconds, 2 * sum(replica.cold_start for replica in replicas) / 1e9)
        if self.seconds > seconds:
            return "time"
        if self.rounds >= self.settings.max_pairs:
            return "max repeats"
        return None

    @property
    def _incumbent_ratio(self) -> float | None:
        """The ratio of the best so far, to which only a single candidate beside the source is compared."""
        if len(self.comparisons) > 1 or self.comparisons[0].source is None:
            return None
        return self.settings.incumbent_ratio

    def _width_reason(self, comparison: Comparison, load: Load) -> StopReason | None:
        if len(comparison.selected_pairs()) < max(TIMING.fewest_pairs * self.replicas, self._fewest_pairs):
            return None
        estimate = comparison.estimate()
        width = (estimate.high - estimate.low) / estimate.value
        target = self.settings.target_width
        if comparison.source is not None:
            target = max(target, width_beside(error_of(estimate.value, load.contention)))
        if width <= target:
            return "narrow"
        longer = max(1.0, self.settings.seconds / max(self.seconds, 1e-9))
        remaining_share = comparison.remaining_width(longer)
        if remaining_share > 1 - TIMING.worthwhile_shrinking and width * remaining_share > target:
            return "no narrower"
        return None

    @property
    def _fewest_pairs(self) -> int:
        return PAIRS_IF_WIDE if self.settings.target_width >= WIDE else PAIRS
