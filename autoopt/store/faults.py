"""Fault injection: kill this process at a named point.

Off unless `AUTOOPT_FAULT` is set, as `name` or `name:count`: the process kills itself (SIGKILL, nothing is cleaned up)
the `count`-th time it reaches that point, the first time without a count. `POINTS` are the names.
"""

from __future__ import annotations

import os
import signal

POINTS = ("after copy", "after fsync", "after rename", "before commit", "after commit", "between ask and tell")

_armed, _left = "", 0


def arm(fault: str) -> None:
    """Kill this process at a point from now on, as `AUTOOPT_FAULT` would; an empty string disarms."""
    global _armed, _left
    _armed, _, count = fault.partition(":")
    _left = int(count or 1)


arm(os.environ.get("AUTOOPT_FAULT", ""))


def reached(point: str) -> None:
    """Say that `point` is reached."""
    global _left
    if point == _armed:
        _left -= 1
        if _left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
