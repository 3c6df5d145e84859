"""What else the machine does while something is measured: other processes' load, the CPU's frequency."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUSY = 0.2
"""Other processes' load, in cores, from which a machine counts as busy."""
LOOK = 0.05
"""Seconds over which that load is taken."""


@dataclass(frozen=True)
class Reading:
    """Seconds since some start: of the clock, of all cores busy, of this process on the CPU."""

    clock: float
    busy: float
    own: float

    @staticmethod
    def now() -> Reading:
        return Reading(time.monotonic(), _busy_seconds(), time.process_time())


def others(before: Reading, after: Reading) -> float | None:
    """Cores that other processes used between two readings; None where the system does not tell or the time was
    too short for its 10 ms ticks."""
    spent = after.clock - before.clock
    if before.busy < 0 or spent < 0.05:
        return None
    return max(0.0, ((after.busy - before.busy) - (after.own - before.own)) / spent)


def _busy_seconds() -> float:
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return -1.0
    user, nice, system, _, _, irq, softirq, steal = (int(f) for f in fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(limit: float) -> dict[str, Any]:
    """Wait until other processes leave a core's worth of the machine alone, at most `limit` seconds.

    Returns `{"waited": seconds, "quiet": bool or None}`; a `limit` of 0 does not look at all.
    """
    began = time.monotonic()
    quiet: bool | None = None
    while limit > 0:
        before = Reading.now()
        time.sleep(LOOK)
        load = others(before, Reading.now())
        if load is None:
            break
        quiet = load < 2 * BUSY
        if quiet or time.monotonic() - began > limit:
            break
    return {"waited": round(time.monotonic() - began, 3), "quiet": quiet}


def frequency() -> float | None:
    """The current frequency of the first core in MHz, or None."""
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
    try:
        return int(path.read_text()) / 1000
    except (OSError, ValueError):
        return None


def describe() -> Mapping[str, Any]:
    """What the result depends on: affinity, cores, load average, frequency."""
    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return {"affinity": affinity, "cores": os.cpu_count(), "load": os.getloadavg()[0], "frequency_mhz": frequency()}
