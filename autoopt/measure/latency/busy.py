"""Other programs: their load, waiting until they are quiet, and precedence over them.

`OtherPrograms` is what a measurement sees of it. Beside other programs, the threads of a model lose their cores at
different times, and no estimator makes up for that: ratios of models on two threads had intervals of 1.8 % on each side
with precedence and of 30 % without (benchmarks/measurement/README.md). With real-time priority they keep their cores,
and blocks are equal within 1 %. Linux grants it to root, to CAP_SYS_NICE and within the limit that `ulimit -r` shows.
Without it, candidates are timed on one thread too.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from autoopt.json_codec import JsonObject, JsonValue
from autoopt.measure.request import MeasureRequest
from autoopt.measure.two_ratios import contention
from autoopt.model.model_file import ModelFile
from autoopt.tuning import TIMING


@dataclass(frozen=True)
class Reading:
    """Seconds since some start: of the clock, of cores busy, of this process on a core."""

    clock: float
    busy: float
    """Of the cores that this process may use; -1 where the system does not report it."""
    process: float
    runnable: int = 1
    """Threads of the machine that were on a core or waited for one, with this one."""
    elsewhere: float = 0.0
    """Of the other cores."""

    @staticmethod
    def now() -> Reading:
        try:
            statistics = Path("/proc/stat").read_text()
        except OSError:
            return Reading(time.monotonic(), -1.0, time.process_time())
        all_cores, *lines = statistics.splitlines()
        own = {f"cpu{core}" for core in affinity()}
        busy = sum(_busy_seconds(line) for line in lines if line.partition(" ")[0] in own)
        elsewhere = _busy_seconds(all_cores) - busy
        runnable = int(statistics.split("procs_running ", 1)[1].split("\n", 1)[0])
        return Reading(time.monotonic(), busy, time.process_time(), runnable, elsewhere)


def _busy_seconds(line: str) -> float:
    """Seconds that a line of `/proc/stat` counts as busy."""
    user, nice, system, _, _, irq, softirq, steal = map(int, line.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """The activity of other programs during a measurement."""

    cores: float | None = None
    """The cores that they used, of those that this process may use; None if that is not measurable."""
    runnable: float = 0.0
    """Mean number of their threads that were on a core or waited for one."""
    elsewhere: float = 0.0
    """The other cores of the machine that they used."""
    gave_way: bool = False
    """True if they gave their cores to the models while these were timed."""

    @staticmethod
    def between(before: Reading, after: Reading) -> Load:
        elapsed = after.clock - before.clock
        if before.busy < 0 or elapsed < TIMING.sample_seconds:
            return Load()
        cores = ((after.busy - before.busy) - (after.process - before.process)) / elapsed
        elsewhere = (after.elsewhere - before.elsewhere) / elapsed
        return Load(max(0.0, cores), max(0.0, (before.runnable + after.runnable) / 2 - 1), max(0.0, elsewhere))

    @staticmethod
    def sample() -> Load:
        """Look at the load for a moment."""
        before = Reading.now()
        time.sleep(TIMING.sample_seconds)
        return Load.between(before, Reading.now())

    @staticmethod
    def mean(loads: Sequence[Load]) -> Load:
        """The mean of several samples, at least one."""
        known = [load.cores for load in loads if load.cores is not None]
        runnable = sum(load.runnable for load in loads) / len(loads)
        elsewhere = sum(load.elsewhere for load in loads) / len(loads)
        return Load(sum(known) / len(known) if known else None, runnable, elsewhere)

    @property
    def busy(self) -> bool:
        return self.cores is not None and self.cores > TIMING.busy_load

    @property
    def contention(self) -> float:
        """The contention for caches and memory; 0 beside idle programs."""
        if self.busy:
            return contention(self.runnable, core_count())
        return contention(self.runnable, os.cpu_count() or 1) if self.elsewhere > TIMING.busy_load else 0.0


@dataclass
class QuietWait:
    """Waits for a quiet machine, with less patience after each failure: some machines are never quiet."""

    in_vain: int = 0
    """Number of consecutive waits that ended on a busy machine."""
    is_quiet: bool = False
    """The machine's state, as far as it is known."""
    known_until: float = 0.0
    """Time on `time.monotonic` until which it is known."""

    def wait(self, limit: float) -> dict[str, JsonValue]:
        """Wait until other processes are quiet.

        The `limit` in seconds is halved for each failed wait since the machine was last quiet; 0 skips the check.

        Returns:
            `{"waited": seconds, "quiet": bool or None}`; None if the load is unknown.
        """
        began = time.monotonic()
        if began < self.known_until:
            return {"waited": 0.0, "quiet": self.is_quiet}
        patience = limit / 2**self.in_vain
        quiet: bool | None = None
        while limit > 0:
            cores = Load.sample().cores
            if cores is None:
                break
            quiet = cores < 2 * TIMING.busy_load
            if quiet or time.monotonic() - began > patience:
                break
        self.in_vain = self.in_vain + 1 if quiet is False else 0
        return {"waited": round(time.monotonic() - began, 3), "quiet": quiet}

    def note(self, load: Load) -> None:
        """Take note of the load during a measurement that has just ended."""
        self.is_quiet = load.cores is not None and not load.busy
        is_known = self.is_quiet or (load.busy and self.in_vain > 0)
        self.known_until = time.monotonic() + TIMING.known_seconds if is_known else 0.0


def affinity() -> list[int]:
    """List the cores that this process may use; empty where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def core_count() -> int:
    """Count the cores that this process may use."""
    return len(affinity()) or os.cpu_count() or 1


def describe() -> dict[str, JsonValue]:
    """Describe what a result depends on: affinity, cores, load average, frequency of the first core in MHz."""
    frequency: float | None = None
    with suppress(OSError, ValueError):  # not every system reports it
        frequency = int(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq").read_text()) / 1000
    return {"affinity": affinity(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "frequency_mhz": frequency}


def thread_count(request: MeasureRequest, model: ModelFile | None) -> int:
    """Count the intra-op threads of a model; the runtime's default is one for each core."""
    threads = None if model is None else model.session_options.get("intra_op_num_threads")
    if not isinstance(threads, int):
        threads = request.target.threads
    return threads or core_count()


PRIORITY: Final = 1
"""The lowest real-time priority: above all usual programs, below what a system itself runs in real time."""
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
    """Cores of this process to which no helper is bound; empty if none is bound, or some to each."""

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
            everywhere = os.sched_getaffinity(0)
            bound: set[int] = set()
            for thread in _helpers():
                with suppress(OSError):  # it has ended
                    cores = os.sched_getaffinity(thread)
                    bound |= cores if cores < everywhere else set()
            # The runtime binds its default threads. Real time would leave the calling thread on the core of one of
            # them, and the model would run on one thread: a transformer of 0.67 ms took 1.06 ms.
            self._cores = everywhere - bound if bound else set()

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


def _helpers() -> list[int]:
    """List the threads of this process that Python has not started."""
    own = {thread.native_id for thread in threading.enumerate()}
    own.add(threading.get_native_id())  # in a fork, the main thread still has the number of its parent
    return [int(name) for name in os.listdir("/proc/self/task") if int(name) not in own]


def runs_on_several(request: MeasureRequest, model: ModelFile) -> bool:
    """True if the model or the source, which is another one, runs on several threads of the CPU."""
    source = request.source
    if source is None or request.target.execution_provider != "CPUExecutionProvider" or model.same_as(source):
        return False
    return max(thread_count(request, model), thread_count(request, source)) > 1
