"""Resources that a command and all processes that it starts use."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.1
SUBREAPER = 36
"""Option of `prctl`: processes whose parent has ended become children of this one."""


@dataclass(frozen=True)
class Usage:
    """The end of a command."""

    wall: float
    """Seconds."""
    cpu: float
    """CPU seconds of the command and of the processes that ended with it."""
    background: float
    """CPU seconds of the processes that it left behind, until they ended."""
    peak: float
    """Largest sum of the proportional set sizes of its processes, in MB, sampled every 0.1 s."""
    output: str


def measure(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Usage:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed; with the end of its standard error.
    """
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak = [0.0]
    done = threading.Event()
    sampler = threading.Thread(target=_sample, args=(process.pid, done, peak), daemon=True)
    before = os.times()
    sampler.start()
    output, errors = process.communicate()
    wall = time.monotonic() - began
    done.set()
    sampler.join()
    after = os.times()
    if process.returncode:
        raise RuntimeError(errors[-2000:])
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    _wait_for_background()
    end = os.times()
    background = end.children_user + end.children_system - after.children_user - after.children_system
    return Usage(wall, cpu, round(background, 3), peak[0] / 1e6, output)


def _wait_for_background() -> None:
    """Wait until what the command has left behind ended."""
    while psutil.Process().children():
        with suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        time.sleep(SAMPLE_SECONDS)


def _sample(pid: int, done: threading.Event, peak: list[float]) -> None:
    while not done.wait(SAMPLE_SECONDS):
        total = 0.0
        with suppress(psutil.Error):
            root = psutil.Process(pid)
            for process in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    total += process.memory_full_info().pss
        peak[0] = max(peak[0], total)
