"""Lock files in a folder that everybody may write to, and their generations.

A lock file whose holders are suspended is removed, so that the next process makes another one. Where it belongs to
another user, the next generation takes its place: `name.1.lock`, `name.2.lock`, ...
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from autoopt.errors import SystemFailure

LOCK_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags to open a lock file: reading is all that flock needs."""
_LOCKS = Path("/proc/locks")
_FLOCK: Final = "hhlli"
"""Fields of `struct flock`: kind, whence, start, length, process."""


def newest_generation(path: Path) -> Path:
    """The lock file to use: the newest generation that exists, else `path` itself."""
    newest, number = path, 1
    while os.path.lexists(following := _generation(path, number)):
        newest, number = following, number + 1
    return newest


def is_replaced(fd: int, path: Path) -> bool:
    """True if the open file is no longer the newest generation."""
    try:
        return not os.path.samestat(os.fstat(fd), os.lstat(newest_generation(path)))
    except FileNotFoundError:
        return True


def replace_lock_file(fd: int, path: Path) -> None:
    """Have the next process use another lock file than the open one."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Two processes must not each replace a file: the second one would be in use.
        fcntl.flock(folder, fcntl.LOCK_EX)
        if is_replaced(fd, path):
            return
        newest = newest_generation(path)
        try:
            newest.unlink()
        except OSError:  # it belongs to another user
            number = 1
            if newest != path:
                number += int(newest.stem.rpartition(".")[2])
            os.close(open_lock_file(_generation(path, number)))
    finally:
        os.close(folder)


def _generation(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def open_lock_file(path: Path) -> int:
    """Open the lock file for reading, all that flock needs; create it if it does not exist.

    In a folder that everybody may write to, a link or another kind of file could be a trap, so it is refused.
    """
    while True:
        try:
            fd = os.open(path, LOCK_FLAGS)
        except FileNotFoundError:
            try:
                fd = os.open(path, LOCK_FLAGS | os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                continue
            except OSError as error:
                raise SystemFailure(
                    f"cannot create the lock file: {error.strerror}",
                    where=str(path),
                    remedy="set AUTOOPT_GATE to a folder that you may write to",
                ) from error
            os.fchmod(fd, 0o644)  # readable by all users, whatever the umask
            return fd
        except OSError as error:
            reason = error.strerror
            if error.errno == errno.ELOOP:
                reason = "it is a link"
            raise SystemFailure(f"unusable lock file: {reason}", where=str(path), remedy="remove it") from error
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
            return fd
        os.close(fd)
        reason = "not a regular file with one name"
        raise SystemFailure(f"unusable lock file: {reason}", where=str(path), remedy="remove it")


@contextmanager
def place_in_line(path: Path, place: float) -> Iterator[None]:
    """Have a place in the line at a lock file, which others see: the smaller, the earlier.

    It is a lock on one byte, which the kernel releases when the process ends. Where it is not to be had, there is no
    place.
    """
    fd = open_lock_file(newest_generation(path))
    try:
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _byte_range(fcntl.F_RDLCK, _byte(place), 1))
        yield
    finally:
        os.close(fd)


def is_anybody_before(fd: int, place: float) -> bool:
    """True if somebody has a smaller place in the line at this lock file."""
    if _byte(place) == 0:
        return False
    with suppress(OSError):
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _byte_range(fcntl.F_WRLCK, 0, _byte(place)))
        return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)
    return False


def _byte(place: float) -> int:
    return int(place * 1000)


def _byte_range(kind: int, start: int, length: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0)


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
