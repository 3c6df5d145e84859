"""Watching other processes in tests."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import psutil
from children import HANG_SECONDS


def pids_from(fifo: Path, seconds: float = HANG_SECONDS) -> list[int]:
    """What a process writes into a named pipe.

    Raises:
        AssertionError: nobody did within the bound.
    """
    text = ""
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        deadline = time.monotonic() + seconds
        while not text.endswith("\n"):
            ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"nobody wrote to {fifo}"
            read = os.read(reader, 4096).decode()
            assert read, f"who opened {fifo} wrote nothing"
            text += read
    finally:
        os.close(reader)
    return [int(word) for word in text.split()]


def all_gone(pids: list[int], seconds: float = HANG_SECONDS) -> bool:
    """Whether these processes end within the bound (ended and not collected counts as gone)."""
    processes = []
    for pid in pids:
        try:
            processes.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if all(_is_gone(process) for process in processes):
            return True
        psutil.wait_procs(processes, timeout=0.05)
    return False


def _is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return True
