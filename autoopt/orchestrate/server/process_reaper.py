"""Ending processes and all that came of them, also when the one that was to do it has been killed itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil

GRACE_SECONDS = 15.0
"""How long processes get to end by themselves."""


def end(groups: Sequence[int]) -> None:
    """End process groups, named by their leaders, and all that came of these: asked first, killed after a while."""
    leaders: list[psutil.Process] = []
    families: list[psutil.Process] = []
    for group in groups:
        with suppress(psutil.NoSuchProcess):
            leaders.append(psutil.Process(group))
            families += leaders[-1].children(recursive=True)
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGINT)
    _, slow = psutil.wait_procs(leaders, timeout=GRACE_SECONDS)
    for left in families:
        with suppress(psutil.NoSuchProcess):
            left.terminate()
    _, alive = psutil.wait_procs(families, timeout=GRACE_SECONDS)
    for process in [*alive, *slow]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs([*alive, *slow], timeout=GRACE_SECONDS)


class Heir:
    """A small process that ends what was entrusted to it when this process is gone without having said `release`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def entrust(self, group: int, last: bool = False) -> None:
        """See to it that a process group ends; `last`: only after the others."""
        self._say(f"{group} {'last' if last else 'first'}\n")

    def release(self) -> None:
        """Nothing is left to end."""
        self._say("over\n")
        assert self._process.stdin
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin
        with suppress(OSError):  # somebody has killed it; then there is no heir
            self._process.stdin.write(line)
            self._process.stdin.flush()


def inherit(lines: Iterable[str]) -> None:
    """The heir's side: hear of processes until the other end is closed, then end those that are still there."""
    known: dict[str, list[psutil.Process]] = {"first": [], "last": []}
    for line in lines:
        if line == "over\n":
            return
        number, when = line.split()
        with suppress(psutil.NoSuchProcess):
            known[when].append(psutil.Process(int(number)))
    for when in ("first", "last"):
        end([leader.pid for leader in known[when] if leader.is_running()])


if __name__ == "__main__":
    inherit(sys.stdin)
