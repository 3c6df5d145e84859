"""The processes that hold a file lock, as far as the kernel shows them: only those of this pid namespace."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_LOCKS = Path("/proc/locks")


def lock_holders(fd: int) -> list[int]:
    """Process ids of those who hold a `flock` on the file of this descriptor; empty if the kernel does not tell."""
    status = os.fstat(fd)
    lines: list[str] = []
    with suppress(OSError):
        lines = _LOCKS.read_text().splitlines()
    pids: set[int] = set()
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{status.st_ino}"):
            pid = int(words[4])
            if _has_open(pid, status):
                pids.add(pid)
    return sorted(pids)


def is_suspended(pid: int) -> bool:
    """True if a signal has stopped the process, as Ctrl-Z does."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def describe_processes(pids: Sequence[int]) -> str:
    """The processes for people: `process 12, process 34 of user ann (suspended)`; empty without any."""
    names: list[str] = []
    for pid in pids:
        name = f"process {pid}"
        user = _other_user(pid)
        if user:
            name += f" of user {user}"
        if is_suspended(pid):
            name += " (suspended)"
        names.append(name)
    return ", ".join(names)


def _other_user(pid: int) -> str:
    """The name of the user whose process it is; empty for this user."""
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return ""
    if owner == os.geteuid():
        return ""
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return str(owner)


def _has_open(pid: int, status: os.stat_result) -> bool:
    """True if the process has the file open: inode numbers repeat on other file systems.

    The files of other users' processes cannot be seen; those processes count as having it open.
    """
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return True
    except OSError:
        return False
    for name in names:
        with suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), status):
                return True
    return False
