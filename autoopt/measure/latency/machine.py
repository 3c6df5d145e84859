"""The state of the machine during a measurement: the load of other processes, the CPU's frequency."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from autoopt.json_codec import JsonValue

BUSY = 0.2
"""Load of other processes, in cores, from which a machine counts as busy."""
SAMPLE_SECONDS = 0.05
"""Time over which that load is sampled; shorter samples are too coarse for the kernel's 10 ms ticks."""


@dataclass(frozen=True)
class Reading:
    """Seconds since some start: of the clock, of all cores busy, of this process on a core."""

    clock: float
    busy: float
    """-1 where the system does not report it."""
    process: float

    @staticmethod
    def now() -> Reading:
        return Reading(time.monotonic(), _busy_seconds(), time.process_time())


def others_load(before: Reading, after: Reading) -> float | None:
    """Compute the cores that other processes used between two readings; None if that is not measurable."""
    elapsed = after.clock - before.clock
    if before.busy < 0 or elapsed < SAMPLE_SECONDS:
        return None
    return max(0.0, ((after.busy - before.busy) - (after.process - before.process)) / elapsed)


def _busy_seconds() -> float:
    try:
        line = Path("/proc/stat").read_text().split("\n", 1)[0]
    except OSError:
        return -1.0
    user, nice, system, _, _, irq, softirq, steal = map(int, line.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(limit: float) -> dict[str, JsonValue]:
    """Wait until other processes are quiet, at most `limit` seconds; a limit of 0 skips the check.

    Returns:
        `{"waited": seconds, "quiet": bool or None}`; None if the load is unknown.
    """
    began = time.monotonic()
    quiet: bool | None = None
    while limit > 0:
        before = Reading.now()
        time.sleep(SAMPLE_SECONDS)
        load = others_load(before, Reading.now())
        if load is None:
            break
        quiet = load < 2 * BUSY
        if quiet or time.monotonic() - began > limit:
            break
    return {"waited": round(time.monotonic() - began, 3), "quiet": quiet}


def frequency() -> float | None:
    """Read the current frequency of the first core in MHz; None where the system does not report it."""
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
    try:
        return int(path.read_text()) / 1000
    except (OSError, ValueError):
        return None


def affinity() -> list[int]:
    """List the cores that this process may use; empty where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def core_count() -> int:
    """Count the cores that this process may use."""
    return len(affinity()) or os.cpu_count() or 1


def describe() -> dict[str, JsonValue]:
    """Describe what a result depends on: affinity, cores, load average, frequency."""
    return {"affinity": affinity(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "frequency_mhz": frequency()}
