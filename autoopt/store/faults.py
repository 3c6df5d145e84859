"""Fault injection: kill this process at a named point.

Off unless `AUTOOPT_FAULT` is set, as `name` or `name:count`. The process then kills itself (SIGKILL, nothing is cleaned
up) the `count`-th time it reaches that point, by default the first time. `POINTS` are the names.
"""

from __future__ import annotations

import os
import signal
from typing import Final

POINTS: Final = (
    "after copy",
    "after fsync",
    "after rename",
    "before commit",
    "after commit",
    "between ask and tell",
    "within package",
)

_point, _passes = "", 0


def arm(fault: str) -> None:
    """Kill this process at a point from now on, as `AUTOOPT_FAULT` would; an empty string disarms."""
    global _point, _passes
    _point, _, count = fault.partition(":")
    _passes = int(count or 1)


arm(os.environ.get("AUTOOPT_FAULT", ""))


def reached(point: str) -> None:
    """Report that the process is at `point`."""
    global _passes
    if point == _point:
        _passes -= 1
        if _passes <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
