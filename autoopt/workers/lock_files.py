"""Lock files in a folder that everybody may write to, and their generations.

A lock file whose holders are suspended is removed, so that the next process makes another one. Where it belongs to
another user, the next generation takes its place: `name.1.lock`, `name.2.lock`, ...
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from autoopt.errors import SystemFailure

LOCK_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags to open a lock file: reading is all that flock needs."""


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
