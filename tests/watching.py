"""Watching other processes in tests."""

from __future__ import annotations

import time
from pathlib import Path

import psutil


def pids_from(fifo: Path) -> list[int]:
    return [int(word) for word in fifo.read_text().split()]


def all_gone(pids: list[int], seconds: float = 10.0) -> bool:
    """Whether these processes end within the bound (ended and not collected counts as gone)."""
    processes = []
    for pid in pids:
        try:
            processes.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes if psutil.pid_exists(p.pid)):
            return True
        psutil.wait_procs(processes, timeout=0.05)
    return False
