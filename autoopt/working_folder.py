"""Temporary files: working folders, which a later process clears if this one is killed, and files that replace others.

A working folder names its owner in a file. The owner also holds a lock, which tells other containers of the machine
when it has ended. Owners on other machines count as alive.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from autoopt.errors import InputError
from autoopt.owner import UNKNOWN, boot, is_known_alive, is_known_dead, this_process

PREFIX = "autoopt-work-"
OWNER_FILE = "owner"
_locks: dict[Path, int] = {}
"""The open lock files of this process, by folder."""
SIGNING_SECONDS = 600.0
"""A working folder that names no owner is abandoned after this time."""
STORE_WORK = "work"
"""Name of the folder below the home of a store that holds the working folders of runs."""
READINGS = "readings"
"""Name of the folder below the home of a store that holds what workers read from the user's files."""
EXPORTED = "exported"
"""Name of the folder below the home of a store that holds the ONNX models of Hugging Face models."""
HEAD_BYTES = 4096
"""The beginning of a file that tells who wrote it."""


def make_working_folder(parent: Path) -> Path:
    """Make a folder below `parent` for this process, and remove the folders of processes that have ended."""
    parent.mkdir(parents=True, exist_ok=True)
    for folder in abandoned_folders(parent):
        shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        _lock(folder)
        (folder / OWNER_FILE).write_text(this_process())
    except OSError:  # the disk is full
        remove_working_folder(folder)
        raise
    return folder


@contextmanager
def working_folder(parent: Path | None = None) -> Iterator[Path]:
    """A working folder within the context, below `parent` or the system's folder for temporary files."""
    folder = make_working_folder(parent or Path(tempfile.gettempdir()))
    try:
        yield folder
    finally:
        remove_working_folder(folder)


def working_folders(parent: Path) -> list[Path]:
    """The working folders below `parent`, whoever owns them."""
    return sorted(parent.glob(f"{PREFIX}*"))


def abandoned_folders(parent: Path) -> list[Path]:
    """The working folders below `parent` of this user's processes that are known to have ended."""
    abandoned: list[Path] = []
    for folder in working_folders(parent):
        with suppress(OSError):  # it is being removed, or belongs to another user
            if folder.stat().st_uid == os.getuid() and _is_abandoned(folder):
                abandoned.append(folder)
    return abandoned


def _is_abandoned(folder: Path) -> bool:
    owner = ""
    with suppress(FileNotFoundError):
        owner = (folder / OWNER_FILE).read_text()
    if owner:
        return is_known_dead(owner) or (not is_known_alive(owner) and _is_unlocked(folder))
    # It is being made, or its maker was killed meanwhile.
    return time.time() - folder.stat().st_mtime > SIGNING_SECONDS


def _lock_file(folder: Path) -> Path:
    """The file that the owner locks; it has another name on other machines and mounts, which may not see the lock."""
    return folder / f"lock.{boot()}.{folder.stat().st_dev}"


def _lock(folder: Path) -> None:
    """Lock a folder until this process ends, if its file system has locks."""
    if boot() == UNKNOWN:
        return
    file = os.open(_lock_file(folder), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    _locks[folder] = file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        _lock_file(folder).unlink()


def _is_unlocked(folder: Path) -> bool:
    """True if the owner has locked its folder and has ended; False if that is not known."""
    try:
        with _lock_file(folder).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked, or no lock of this machine
        return False
    return True


def remove_working_folder(folder: Path) -> None:
    """Remove a folder of this process, and release its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder in _locks:
        os.close(_locks.pop(folder))


def check_own(file: Path, mark: str) -> None:
    """Check that a file may be replaced: there is none, it is empty, a device or a pipe, or autoopt wrote it.

    All that autoopt writes there has the text `mark` near its beginning. A link is as good as the file behind it.

    Raises:
        InputError: It is a folder, or something else than autoopt writes.
    """
    if file.is_dir():
        raise InputError("is a folder, not a file to write", where=str(file))
    if not file.is_file():
        return
    with file.open("rb") as content:
        head = content.read(HEAD_BYTES)
    if head and mark.encode() not in head:
        raise InputError("has something that autoopt did not write", where=str(file), remedy="name another file")


@contextmanager
def replacing(target: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield a new, empty file beside `target`, which replaces it atomically if the block ends without an exception.

    `mode` has the file's permissions, less those that the umask withholds.
    """
    new = target.with_name(f".{os.urandom(8).hex()}.new")
    new.touch(mode)
    try:
        yield new
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


def temporary_folder() -> Path:
    """The working folder of this process in the system's folder for temporary files, made at the first call."""
    return _temporary_folder(os.getpid())


@lru_cache(maxsize=1)
def _temporary_folder(pid: int) -> Path:
    """The folder of process `pid`: a fork makes one of its own."""
    return make_working_folder(Path(tempfile.gettempdir()))


def remove_temporary_folder() -> None:
    """Remove the folder that `temporary_folder` has made for this process, if it has."""
    if _temporary_folder.cache_info().currsize:
        folder = temporary_folder()
        _temporary_folder.cache_clear()
        remove_working_folder(folder)
