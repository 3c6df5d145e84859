"""Processes: their names as owners of claims, by which others can tell if they still live, and their families."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import signal
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

UNKNOWN: Final = "-"
# From <linux/prctl.h>; the standard library has no names for them.
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class _Process(NamedTuple):
    """The parts of an owner: `host/boot/pid namespace/pid/start`."""

    host: str
    boot: str
    namespace: str
    pid: str
    start: str


def this_process() -> str:
    """The owner that stands for this process; more may be appended after another `/`."""
    return "/".join((*_machine(), str(os.getpid()), _start(os.getpid()) or UNKNOWN))


def boot() -> str:
    """The id of the machine's current boot; `-` if it cannot be read."""
    return _machine()[1]


def is_known_alive(owner: str) -> bool:
    """True if the process is known to be running on this machine."""
    process = _parse(owner)
    if process is None or UNKNOWN in process[1:]:
        return False
    return process[1:3] == _machine()[1:] and _start(int(process.pid)) == process.start


def is_known_dead(owner: str) -> bool:
    """True if the process is known to have ended.

    False if this machine cannot know: the process is on another machine or in another container. Then only the end of
    its lease decides.
    """
    process = _parse(owner)
    host, boot, namespace = _machine()
    if process is None or UNKNOWN in (process.boot, boot):
        return False
    if process.boot != boot:
        # Either this machine after a reboot, or another machine.
        return process.host == host and not host.endswith(UNKNOWN)
    if process.namespace != namespace or UNKNOWN in (namespace, process.start):
        return False
    return _has_ended(int(process.pid), process.start)


def process_text(owner: str) -> str:
    """An owner for people: `process 17 on forge`."""
    host, _, _, process = [*owner.split("/"), "", "", ""][:4]
    return f"process {process} on {host}"


def _parse(owner: str) -> _Process | None:
    parts = owner.split("/")
    return _Process(*parts[:5]) if len(parts) >= 5 and parts[3].isdecimal() else None


@lru_cache(maxsize=1)
def _machine() -> tuple[str, str, str]:
    """Host, boot and pid namespace; `-` for what cannot be read.

    The host is its name with a digest of its machine id: names alone repeat, and then work would be taken from the
    living.
    """
    machine_id = _read("/etc/machine-id")
    digest = hashlib.sha256(machine_id.encode()).hexdigest()[:8] if machine_id else UNKNOWN
    host = f"{platform.node().replace('/', '_')}.{digest}"
    boot = _read("/proc/sys/kernel/random/boot_id").replace("-", "")
    namespace = ""
    with suppress(OSError):
        # In a namespace that still has its parent's /proc, process ids there are those of other processes.
        if os.readlink("/proc/self") == str(os.getpid()):
            namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return host, boot or UNKNOWN, namespace or UNKNOWN


def _has_ended(pid: int, start: str) -> bool:
    actual_start = _start(pid)
    if actual_start is not None:
        return actual_start != start
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it exists, but belongs to another user
        return False
    # A zombie has ended. A process whose state cannot be read may live.
    return bool(_read(f"/proc/{pid}/stat"))


def _start(pid: int) -> str | None:
    """The start of a process, in clock ticks since boot; None if it does not exist or is a zombie."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X", "x"):
        return None
    return fields[19]


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def end_with_parent(parent: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent ends; end at once if it has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose parents end."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> set[int]:
    """The children of this process, also those that have ended and were not collected."""
    with suppress(OSError):
        return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
    return set()
