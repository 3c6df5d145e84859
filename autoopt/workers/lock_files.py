"""The lock file of the gate, in a folder that everybody may write to, and its generations.

The file has two kinds of locks: the `flock` of those who are inside, and a read lock on one byte for each who waits.
The number of the byte is the place in the line and names the process, because the kernel does not say who locks a byte.
Both need no permission to write. A file whose holders are suspended is removed, so that the next process makes another
one. Where it belongs to another user, the next generation takes its place: `name.1.lock`, `name.2.lock`, ...
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import stat
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from autoopt.errors import SystemFailure

LOCK_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags to open a lock file: reading is all that flock needs."""
_LOCKS = Path("/proc/locks")
_FLOCK: Final = "hhlli"
"""Fields of `struct flock`: kind, whence, start, length, process."""
_PID_BITS: Final = 22
"""Bits of a process id on Linux."""
INSIDE: Final = 1 << _PID_BITS
"""Places below this one are those of measurers who are inside."""


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


class Passage:
    """One visitor's way through the gate: the open lock file with a place in the line, and then the lock.

    The smaller the place, the earlier. A measurer who is inside keeps the first one. The kernel releases place and lock
    when the process ends. Where it has no locks on bytes, there is no line.

    Args:
        path: the lock file of the first generation.
        measured: the seconds for which the visitor's run has measured lately.
        alone: a measurer, who comes before work with the same place.
    """

    def __init__(self, path: Path, measured: float, *, alone: bool) -> None:
        self._path = path
        self._alone = alone
        self._place = self._place_after(measured)
        self.fd = self._open()

    def _place_after(self, measured: float) -> int:
        return INSIDE * (1 + 2 * int(measured * 1000) + (not self._alone)) + os.getpid()

    def _open(self) -> int:
        fd = open_lock_file(newest_generation(self._path))
        _set_byte(fd, fcntl.F_RDLCK, self._place)
        return fd

    @property
    def passed_over(self) -> bool:
        """True if others came in meanwhile because this process was suspended."""
        return is_replaced(self.fd, self._path)

    def follow_file(self) -> None:
        """Continue with the newest generation, at the same place."""
        if self.passed_over:
            os.close(self.fd)
            self.fd = self._open()

    def places_before(self) -> list[int]:
        """The places that are earlier; of those with the same `measured`, only measurers'."""
        places: list[int] = []
        ranges = [(0, self._place // INSIDE * INSIDE)]
        with suppress(OSError):
            while ranges:
                start, end = ranges.pop()
                if start < end:
                    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0)
                    kind, _, place, _, _ = struct.unpack(_FLOCK, fcntl.fcntl(self.fd, fcntl.F_OFD_GETLK, asked))
                    if kind != fcntl.F_UNLCK:
                        places.append(place)
                        ranges += [(start, place), (place + 1, end)]
        return places

    def come_first(self) -> None:
        """Take the place of a run that has not measured yet: new work waits from now on."""
        self._move_to(self._place_after(0.0))

    def _move_to(self, place: int) -> None:
        if place != self._place:
            _set_byte(self.fd, fcntl.F_RDLCK, place)
            _set_byte(self.fd, fcntl.F_UNLCK, self._place)
            self._place = place

    def try_lock(self) -> bool:
        """Lock the file and be inside; False if that is not possible now, or if the file was another generation."""
        try:
            fcntl.flock(self.fd, (fcntl.LOCK_EX if self._alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if self.passed_over:
            self.follow_file()
            return False
        if self._alone:
            self._move_to(os.getpid())
        else:
            _set_byte(self.fd, fcntl.F_UNLCK, self._place)
        return True

    def lock_again(self) -> None:
        """Lock the file after `unlock`, unless a measurer came in meanwhile: it may be suspended."""
        with suppress(BlockingIOError):
            fcntl.flock(self.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def unlock(self) -> None:
        """Give the lock up."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def replace_file(self) -> None:
        """Have all who come or wait use another file."""
        replace_lock_file(self.fd, self._path)

    def close(self) -> None:
        """Give place and lock up."""
        os.close(self.fd)


def process_at(place: int) -> int:
    """The process that has a place in the line."""
    return place % INSIDE


def _set_byte(fd: int, kind: int, byte: int) -> None:
    with suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0))


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
