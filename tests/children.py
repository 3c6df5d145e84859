"""Processes that tests start. What is left of them at the end of a test is killed: it would disturb the next one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil

HANG_SECONDS = 300.0
"""Limit of a wait for a process that ends by itself. It ends a test that hangs; no test depends on its length."""
_started: list[subprocess.Popen[Any]] = []


def start_process(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a process that does not outlive the test."""
    process = subprocess.Popen(command, **options)
    _started.append(process)
    return process


def kill_started_processes() -> None:
    """Kill the processes that are still alive, each with its descendants."""
    for process in _started:
        if process.poll() is None:
            family = []
            with suppress(psutil.NoSuchProcess):  # it ended between the two questions
                family = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            process.wait()
    _started.clear()
