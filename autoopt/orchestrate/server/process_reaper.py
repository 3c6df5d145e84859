"""Ending processes and their descendants, even if the process that should do it has been killed itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil

GRACE_SECONDS = 15.0
"""Time for processes to end by themselves before they are killed."""
DONE = "done\n"


def end_groups(groups: Sequence[int]) -> None:
    """End process groups, given by their leaders' ids, and all their descendants: by signal, later by kill."""
    leaders: list[psutil.Process] = []
    descendants: list[psutil.Process] = []
    for group in groups:
        with suppress(psutil.NoSuchProcess):
            leader = psutil.Process(group)
            leaders.append(leader)
            descendants += leader.children(recursive=True)
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGINT)
    _, slow_leaders = psutil.wait_procs(leaders, timeout=GRACE_SECONDS)
    for process in descendants:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(descendants, timeout=GRACE_SECONDS)
    stubborn = [*alive, *slow_leaders]
    for process in stubborn:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(stubborn, timeout=GRACE_SECONDS)


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
        """Add a process group, to be ended after those of a lower rank."""
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
