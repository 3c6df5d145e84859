"""The load of other programs, and waiting until they are quiet."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autoopt.json_codec import JsonValue
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
