"""Ending processes and their descendants, even if the process that should do it has been killed itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil

GRACE_SECONDS = 15.0
"""Time for processes to end by themselves before they are killed."""
POLL_SECONDS = 0.1
DONE = "done\n"


def end_groups(groups: Sequence[int]) -> None:
    """End process groups, given by their leaders' ids, and all their descendants: by signal, later by kill.

    Returns when all are gone, including those started in the meantime.
    """
    leaders: list[psutil.Process] = []
    for group in groups:
        with suppress(psutil.NoSuchProcess):
            leaders.append(psutil.Process(group))
    family = set(leaders)
    _add_descendants(family)
    for leader in leaders:
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, signal.SIGINT)
    slow_leaders = _wait(leaders, family)
    for process in family - set(leaders):
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    stubborn = {*slow_leaders, *_wait(family - set(leaders), family)}
    for process in stubborn:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=GRACE_SECONDS)


def _wait(processes: Iterable[psutil.Process], family: set[psutil.Process]) -> list[psutil.Process]:
    """Wait until processes have ended, and add the processes that they start to the family.

    Returns those that still live after `GRACE_SECONDS`.
    """
    alive = list(processes)
    until = time.monotonic() + GRACE_SECONDS
    while alive and time.monotonic() < until:
        _add_descendants(family)
        _, alive = psutil.wait_procs(alive, timeout=POLL_SECONDS)
    return alive


def _add_descendants(family: set[psutil.Process]) -> None:
    # A process whose parent has ended is nobody's child, so each generation must be seen while its parent lives.
    for process in list(family):
        with suppress(psutil.NoSuchProcess):
            family.update(process.children(recursive=True))


class ProcessReaper:
    """A small process that ends the registered process groups if this process disappears without calling `release`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def register(self, group: int, rank: int = 0) -> None:
        """Add a process group, to be ended after groups of a lower rank."""
        self._send(f"{group} {rank}\n")

    def release(self) -> None:
        """End the reaper: there is nothing left to end."""
        self._send(DONE)
        assert self._process.stdin
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _send(self, line: str) -> None:
        assert self._process.stdin
        with suppress(OSError):  # somebody may have killed the reaper
            self._process.stdin.write(line)
            self._process.stdin.flush()


def reap(lines: Iterable[str]) -> None:
    """In the reaper: read registrations until the other end is closed, then end the processes that still run."""
    leaders: dict[int, list[psutil.Process]] = {}
    for line in lines:
        if line == DONE:
            return
        number, rank = map(int, line.split())
        with suppress(psutil.NoSuchProcess):
            leaders.setdefault(rank, []).append(psutil.Process(number))
    for _, group in sorted(leaders.items()):
        end_groups([leader.pid for leader in group if leader.is_running()])


if __name__ == "__main__":
    reap(sys.stdin)
