"""Measures against the disturbance by other programs, all of them optional.

`OtherPrograms` is what a measurement sees of it. Beside other programs, the threads of a model lose their cores at
different times, and no estimator makes up for that: ratios of models on two threads had intervals of 1.8 % on each side
with it and of 30 % without (benchmarks/measurement/README.md).

- Precedence: with real-time priority they keep their cores, and blocks are equal within 1 %. Linux grants it to root,
  to CAP_SYS_NICE and within the limit that `ulimit -r` shows.
- Without it, candidates are timed on one thread too. Beside two and eight busy processes on two cores, ratios by the
  clock spread by 10 to 40 % from one process to the next, those of CPU times on one thread by 1 to 5 %.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from autoopt.json_codec import JsonObject, JsonValue
from autoopt.measure.inference.runner import NO_SPINNING, resting
from autoopt.measure.latency import timer
from autoopt.measure.latency.load import Load, QuietWait, Reading, core_count, describe, thread_count
from autoopt.measure.latency.subjects import Subject, SubjectOf
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.measure.two_ratios import TwoRatios, error_of
from autoopt.metrics import NORMAL, Estimate
from autoopt.model.model_file import ModelFile
from autoopt.tuning import TIMING

PRIORITY: Final = 1
"""The lowest real-time priority: above all usual programs, below what a system itself runs in real time."""
CLOCK_SHARE, CPU_SHARE = 0.1, 0.4
"""Shares of the setting `seconds` for measuring by the clock and on one thread, where the machine is busy. More of it
by the clock says little: in 5 to 7 s beside eight busy processes, intervals of six models were 8 to 40 % wide on each
side, and other programs add 20 % whatever the time."""
REPLICAS, ROUNDS = 3, 6
"""Sessions of each model and rounds of blocks on one thread at most: beside the error of `DIFFERENCE`, more tell
nothing. With four sessions and twelve rounds, intervals were 1 to 4 % wide on each side beside eight busy processes."""
# With fewer, a single wake-up by chance would be more than `TIMING.rare_waits`.


_QUIET_WAIT = QuietWait()
"""Shared by all measurements of this worker."""


@dataclass
class OtherPrograms:
    """Other programs during one measurement. By default nothing is done about them but to note their load."""

    give_way: bool = False
    """The models' threads go first while they are timed; other programs get as much time as it takes from them."""
    threads: int = 1
    """The smallest number of threads that one of the models runs on."""
    waiting: JsonObject = field(default_factory=dict)
    """The time that was spent waiting for them, and if they became quiet."""
    _began: Reading = field(init=False, default_factory=Reading.now)
    _cores: set[int] = field(init=False, default_factory=set)
    """Cores of this process to which no helper is bound; empty if none is bound."""

    @staticmethod
    def of(request: MeasureRequest) -> OtherPrograms:
        """Wait for them; where they stay busy, models on several threads go first if that is wanted and allowed."""
        waiting = _QUIET_WAIT.wait(request.settings.quiet_seconds)
        models = [*request.models, *([request.source] if request.source else [])]
        counts = [thread_count(request, model) for model in models]
        is_on_cpu = request.target.execution_provider == "CPUExecutionProvider"
        is_wanted = waiting["quiet"] is False and request.settings.precedence and is_on_cpu and max(counts) > 1
        return OtherPrograms(is_wanted and can_go_first(), min(counts), waiting)

    @property
    def are_busy(self) -> bool:
        """True if they are known to be busy and do not give way."""
        return self.waiting.get("quiet") is False and not self.give_way

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note their load from here on. In the end no thread goes first any more."""
        self._began = Reading.now()
        try:
            yield
        finally:
            self._release_helpers()

    def include_helpers(self) -> None:
        """Let the threads go first that runtimes have started so far; they run only while a model does."""
        if self.give_way:
            _set_helpers(os.SCHED_FIFO, PRIORITY)
            self._cores = _cores_without_helpers()

    @contextmanager
    def behind_this_thread(self) -> Iterator[None]:
        """Let the calling thread go first, then the others run for as long."""
        if not self.give_way:
            yield
            return
        began = time.monotonic()
        policy, cores = os.sched_getscheduler(0), os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cores or cores)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        try:
            yield
        finally:
            os.sched_setscheduler(0, policy, os.sched_param(0))
            os.sched_setaffinity(0, cores)
            time.sleep(time.monotonic() - began)

    def keep_if_long(self, seconds: float) -> None:
        """Let no thread go first any more if an inference takes so long that other programs would notice."""
        if seconds > TIMING.longest_with_precedence:
            self._release_helpers()
            self.give_way = False

    def _release_helpers(self) -> None:
        if self.give_way:
            _set_helpers(os.sched_getscheduler(0), 0)

    def load(self) -> Load:
        """The load that the models have seen so far."""
        return self.beside_models(Load.between(self._began, Reading.now()))

    def beside_models(self, load: Load) -> Load:
        """Reduce a load to what the models see of it: nothing on their own cores if it gives way."""
        if not self.give_way:
            return load
        elsewhere = load.elsewhere
        if self.threads < core_count():
            elsewhere += load.cores or 0.0
        return Load(0.0, elsewhere=elsewhere, runnable=load.runnable, gave_way=load.busy)

    def end(self) -> tuple[Load, dict[str, JsonValue]]:
        """Return the load that the models have seen, and the machine's state for the details of a measurement."""
        load = Load.between(self._began, Reading.now())
        _QUIET_WAIT.note(load)
        cores = None if load.cores is None else round(load.cores, 3)
        others = {"others_load": cores, "others_runnable": load.runnable, "precedence": self.give_way}
        return self.beside_models(load), {**describe(), **self.waiting, **others}


@lru_cache(maxsize=1)
def can_go_first() -> bool:
    """Tell if the system lets this process have real-time priority, and nobody made it a polite one (`nice`)."""
    if not hasattr(os, "sched_setscheduler") or not os.path.isdir("/proc/self/task"):
        return False
    policy = os.sched_getscheduler(0)
    if policy != os.SCHED_OTHER or os.getpriority(os.PRIO_PROCESS, 0) > 0:
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        os.sched_setscheduler(0, policy, os.sched_param(0))
    except OSError:
        return False
    return True


def _set_helpers(policy: int, priority: int) -> None:
    for thread in _helpers():
        with suppress(OSError):  # it has ended
            os.sched_setscheduler(thread, policy, os.sched_param(priority))


def _cores_without_helpers() -> set[int]:
    """Find the cores to which no helper is bound; empty if none is bound, or some to each.

    The runtime binds its default threads. Real time would leave the calling thread on the core of one of them, and the
    model would run on one thread: a transformer of 0.67 ms took 1.06 ms.
    """
    everywhere = os.sched_getaffinity(0)
    bound: set[int] = set()
    for thread in _helpers():
        with suppress(OSError):  # it has ended
            cores = os.sched_getaffinity(thread)
            bound |= cores if cores < everywhere else set()
    return everywhere - bound if bound else set()


def _helpers() -> list[int]:
    """List the threads of this process that Python has not started."""
    own = {thread.native_id for thread in threading.enumerate()}
    own.add(threading.get_native_id())  # in a fork, the main thread still has the number of its parent
    return [int(name) for name in os.listdir("/proc/self/task") if int(name) not in own]


def width_beside(error: float) -> float:
    """Relative width of an interval that is narrow enough beside an error which more repeats do not reduce.

    Args:
        error: Standard deviation of the logarithm.
    """
    return TIMING.lasting_share * 2 * NORMAL * error


def clock_settings(request: MeasureRequest, *, busy: bool) -> MeasurementSettings:
    """Shorten the measurement by the clock where other programs disturb it anyway, and one on one thread follows."""
    settings = request.settings
    if busy and timer.can_time_on_core() and any(_runs_on_several(request, model) for model in request.models):
        width = max(settings.target_width, width_beside(TIMING.disturbance))
        return replace(settings, seconds=CLOCK_SHARE * settings.seconds, target_width=width)
    return settings


def cpu_settings(settings: MeasurementSettings) -> MeasurementSettings:
    """The settings of a measurement on one thread."""
    return replace(
        settings,
        seconds=CPU_SHARE * settings.seconds,
        replicas=min(REPLICAS, settings.replicas),
        max_pairs=min(ROUNDS, settings.max_pairs),
        incumbent_ratio=None,
    )


def needs_one_thread(
    request: MeasureRequest, model: ModelFile, by_clock: Estimate | None, *, stopped: str, load: Load
) -> bool:
    """Tell if the clock left a ratio uncertain, and the one on one thread tells more.

    On a busy machine no ratio by the clock is certain: if other programs gave way meanwhile, it is that of free cores.
    It is None if the model was not compared with the source; `stopped` says why the measurement by the clock ended.
    """
    if not timer.can_time_on_core() or not _runs_on_several(request, model):
        return False
    has_same_threads = thread_count(request, model) == thread_count(request, request.source)
    if load.busy or load.gave_way:
        # Other programs do not make up for a factor that is hopeless, a different number of threads may.
        return stopped != "hopeless" or not has_same_threads
    if by_clock is None or not has_same_threads or stopped in ("worse", "hopeless"):
        return False
    return by_clock.high - by_clock.low > TIMING.wide_by_clock * by_clock.value


def _runs_on_several(request: MeasureRequest, model: ModelFile) -> bool:
    """True if the model or the source, which is another one, runs on several threads of the CPU."""
    source = request.source
    if source is None or request.target.execution_provider != "CPUExecutionProvider" or model.same_as(source):
        return False
    return max(thread_count(request, model), thread_count(request, source)) > 1


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


def on_one_thread(model: ModelFile) -> ModelFile:
    """The model with the session option of one thread."""
    return replace(model, session_options={**model.session_options, "intra_op_num_threads": 1})


def both_ratios(
    request: MeasureRequest, by_clock: Estimate, on_one_thread: Estimate, *, is_serial: bool, load: Load
) -> TwoRatios:
    """Weigh the ratio of the request's candidate on one thread beside that by the clock.

    Without a load, the ratio by the clock is as certain as its interval says.
    """
    contention = error_of(on_one_thread.value, load.contention)
    if is_serial:
        # Its blocks are those of the clock, only longer, but the load changes from one measurement to the next.
        return TwoRatios(by_clock, on_one_thread, contention, contention, is_serial=True)
    factor = thread_count(request, request.source) / thread_count(request, request.candidate)
    disturbance = abs(math.log(factor))
    if factor == 1:
        disturbance = TIMING.disturbance if load.busy else 0.0
    return TwoRatios(by_clock, on_one_thread, disturbance, contention, factor, has_free_cores=load.gave_way)


def after_a_look(request: MeasureRequest, by_clock: Estimate, *, stopped: str, load: Load) -> Estimate:
    """Add to the ratio of a hopeless candidate by the clock what other programs may."""
    if load.busy and stopped == "hopeless" and _runs_on_several(request, request.candidate):
        return by_clock.with_log_error(TIMING.look_disturbance)
    return by_clock
