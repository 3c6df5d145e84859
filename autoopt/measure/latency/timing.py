"""The second room, from models to times: interleaved blocks of source and candidates until their ratios are certain.

Where other programs disturb models on several threads, these are timed on one thread too: beside two and eight busy
processes on two cores, ratios by the clock spread by 10 to 40 % from one process to the next, those of CPU times on one
thread by 1 to 5 %.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from autoopt.measure.inference import NO_SPINNING, resting
from autoopt.measure.latency import timer
from autoopt.measure.latency.busy import Load, OtherPrograms, runs_on_several, thread_count
from autoopt.measure.latency.comparison import (
    CallTimes,
    Comparison,
    Pair,
    StopReason,
    ThreadTimes,
    Times,
    disturbed_share,
    preempted_share,
)
from autoopt.measure.latency.prepare import Prepared, TimedCall
from autoopt.measure.latency.throughput import throughput_table
from autoopt.measure.latency.timer import Subject, SubjectOf
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.measure.two_ratios import error_of
from autoopt.metrics import NORMAL, Estimate
from autoopt.model.model_file import ModelFile
from autoopt.tuning import TIMING


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
    if source is None:
        return times
    numbers: dict[bool, list[int]] = {True: [], False: []}
    for number, comparison in enumerate(measurement.comparisons):
        by_clock = None if comparison.source is None else comparison.estimate()
        single = request.alone(number)
        if needs_one_thread(single, single.candidate, by_clock, stopped=measurement.stopped, load=load):
            are_serial = _are_serial(call, single, comparison)
            if not (are_serial and load.gave_way):  # serial ones need no further core
                numbers[are_serial].append(number)
    for are_serial, chosen in numbers.items():
        if not chosen:
            continue
        reference = call.source_subject_of(_by_cpu_time(source, are_serial=are_serial))
        comparisons = []
        for number in chosen:
            candidate = call.subject_of(_by_cpu_time(request.models[number], are_serial=are_serial))
            comparisons.append(Comparison(candidate, reference, seed=request.settings.seed))
            times[number] = ThreadTimes(comparisons[-1], are_serial)
        Measurement(comparisons, cpu_settings(request.settings), request.brief).run()
    return times


def _are_serial(call: TimedCall, request: MeasureRequest, comparison: Comparison) -> bool:
    """Tell if neither the candidate nor the source gives its helper threads work."""
    source = request.source
    if source is None or comparison.source is None or not is_serial(call.subject_of, source, comparison.source):
        return False
    return is_serial(call.subject_of, request.candidate, comparison.candidate)


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
        self._add_replicas(TIMING.first_share)
        yield 0
        first, incumbent = self.comparisons[0].pairs[0], self._incumbent_ratio
        is_hopeless = incumbent is not None and first.candidate / first.source > incumbent * TIMING.hopeless
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
            self._add_replicas(TIMING.next_share)
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
            round_ns += float(first.blocks[0].sum()) + max(
                subject.lead_ns, min(2 * first.warm.time, TIMING.long_lead_ns)
            )
        remaining_ns = max(0.0, self.settings.seconds - elapsed) * 1e9
        by_rounds = 1 + remaining_ns / (TIMING.fewest_pairs * round_ns)
        if self.brief:
            by_sessions = 1 + self._fewest_pairs * round_ns / (session_ns + warm_up_ns)
        else:
            longest_ns = len(self._subjects) * TIMING.next_share * self.settings.seconds * 1e9
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
        load = self.others.load()
        loss = self._loss_reason(load, is_checkpoint=is_checkpoint)
        if loss is not None or not is_checkpoint:
            return loss
        reasons = [self._width_reason(comparison, load) for comparison in self.comparisons]
        if None in reasons:
            return None
        return "no narrower" if "no narrower" in reasons else "narrow"

    def _loss_reason(self, load: Load, *, is_checkpoint: bool) -> StopReason | None:
        """The reason to stop because the candidate is slower than the best so far; at first only by far."""
        incumbent = self._incumbent_ratio
        if incumbent is None or not (is_checkpoint or self.rounds == TIMING.fewest_pairs):
            return None
        lowest = self.comparisons[0].estimate().low
        if lowest > incumbent * (TIMING.hopeless_where_busy if load.busy else TIMING.hopeless):
            return "hopeless"
        return "worse" if is_checkpoint and lowest > incumbent * self.settings.margin else None

    def _limit_reason(self) -> StopReason | None:
        # Fewer rounds say nothing, so a slow model gets twice the time for them.
        seconds = self.settings.seconds * (1 if self.rounds >= TIMING.fewest_pairs else 2)
        if self.rounds < TIMING.pairs_if_wide:
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
        return TIMING.pairs_if_wide if self.settings.target_width >= TIMING.wide else TIMING.pairs


def width_beside(error: float) -> float:
    """Relative width of an interval that is narrow enough beside an error which more repeats do not reduce.

    Args:
        error: Standard deviation of the logarithm.
    """
    return TIMING.lasting_share * 2 * NORMAL * error


def clock_settings(request: MeasureRequest, *, busy: bool) -> MeasurementSettings:
    """Shorten the measurement by the clock where other programs disturb it anyway, and one on one thread follows."""
    settings = request.settings
    if busy and timer.can_time_on_core() and any(runs_on_several(request, model) for model in request.models):
        width = max(settings.target_width, width_beside(TIMING.disturbance))
        return replace(settings, seconds=TIMING.clock_share * settings.seconds, target_width=width)
    return settings


def cpu_settings(settings: MeasurementSettings) -> MeasurementSettings:
    """The settings of a measurement on one thread."""
    return replace(
        settings,
        seconds=TIMING.cpu_share * settings.seconds,
        replicas=min(TIMING.one_thread_replicas, settings.replicas),
        max_pairs=min(TIMING.one_thread_rounds, settings.max_pairs),
        incumbent_ratio=None,
    )


def needs_one_thread(
    request: MeasureRequest, model: ModelFile, by_clock: Estimate | None, *, stopped: str, load: Load
) -> bool:
    """Tell if the clock left a ratio uncertain, and the one on one thread tells more.

    On a busy machine no ratio by the clock is certain: if other programs gave way meanwhile, it is that of free cores.
    It is None if the model was not compared with the source; `stopped` says why the measurement by the clock ended.
    """
    if not timer.can_time_on_core() or not runs_on_several(request, model):
        return False
    has_same_threads = thread_count(request, model) == thread_count(request, request.source)
    if load.busy or load.gave_way:
        # Other programs do not make up for a factor that is hopeless, a different number of threads may.
        return stopped != "hopeless" or not has_same_threads
    if by_clock is None or not has_same_threads or stopped in ("worse", "hopeless"):
        return False
    return by_clock.high - by_clock.low > TIMING.wide_by_clock * by_clock.value


def is_serial(subject_of: SubjectOf, model: ModelFile, timed: Subject) -> bool:
    """Tell if a model gives its helper threads no work, from how often they wake up in a session without spinning.

    A model whose operators are all too small to be shared out takes the same time on one thread as on several. Then its
    CPU time tells what the clock would on a quiet machine. `timed` are its sessions by the clock.
    """
    inference_ns = timed.replicas[0].warm.time
    if inference_ns > TIMING.large_operators_ns:
        return False
    call = subject_of(replace(model, session_options=resting(model.session_options, NO_SPINNING))).make(0)
    calls = max(TIMING.fewest_calls, int(TIMING.counted_ns / max(inference_ns, 1.0)))
    for _ in range(calls):
        call()
    before = timer.helper_waits()
    for _ in range(calls):
        call()
    return timer.helper_waits() - before <= TIMING.rare_waits * calls


def _by_cpu_time(model: ModelFile, *, are_serial: bool) -> ModelFile:
    """The model with the session option of one thread, but with its own options if models share out no work."""
    if are_serial:
        return model
    return replace(model, session_options={**model.session_options, "intra_op_num_threads": 1})
