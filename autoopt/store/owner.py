"""Who works: a process, named so that others can tell whether it still lives."""

from __future__ import annotations

import hashlib
import os
import platform
from functools import lru_cache
from pathlib import Path

UNKNOWN = "-"


def this_process() -> str:
    """`host/boot/pid namespace/pid/start` of this process; more may be appended after another `/`."""
    return f"{_machine()}/{os.getpid()}/{_start(os.getpid()) or UNKNOWN}"


def is_known_alive(owner: str) -> bool:
    """Whether the process that `owner` names is known to be running, on this machine."""
    parts = owner.split("/")
    if len(parts) < 5 or UNKNOWN in parts[1:5] or not parts[3].isdecimal():
        return False
    return parts[1:3] == _machine().split("/")[1:] and _start(int(parts[3])) == parts[4]


def is_known_dead(owner: str) -> bool:
    """Whether the process that `owner` names is known to have ended.

    False where that cannot be told from here: another machine or container. Then only the lease's end decides.
    """
    parts = owner.split("/")
    if len(parts) < 5 or not parts[3].isdecimal():
        return False
    host, boot, namespace, pid, start = parts[:5]
    here_host, here_boot, here_namespace = _machine().split("/")
    if UNKNOWN in (boot, here_boot):
        return False
    if boot != here_boot:  # the same machine after a reboot, or another machine
        return host == here_host and not host.endswith(UNKNOWN)
    if namespace != here_namespace or UNKNOWN in (namespace, start):
        return False
    return _ended(int(pid), start)


@lru_cache(maxsize=1)
def _machine() -> str:
    """`host/boot/pid namespace`; what cannot be read is `-`.

    The host is its name and a digest of its machine id: names alone repeat, and then
    work would be taken from the living.
    """
    machine_id = _read("/etc/machine-id")
    known = hashlib.sha256(machine_id.encode()).hexdigest()[:8] if machine_id else UNKNOWN
    host = f"{platform.node().replace('/', '_')}.{known}"
    boot = _read("/proc/sys/kernel/random/boot_id").replace("-", "")
    try:
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        namespace = ""
    return "/".join((host, boot or UNKNOWN, namespace or UNKNOWN))


def _ended(pid: int, start: str) -> bool:
    found = _start(pid)
    if found is not None:
        return found != start
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # hidden from us, but there
        return False
    return bool(_read(f"/proc/{pid}/stat"))  # a zombie has ended; one that cannot be read at all may live


def _start(pid: int) -> str | None:
    """When a process began, in clock ticks since boot; None where there is none or it is a zombie."""
    stat = _read(f"/proc/{pid}/stat")
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X", "x"):
        return None
    return fields[19]


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
