"""Copies of files that share their blocks with the original where the file system can (Btrfs, XFS and others).

A shared block costs no disk until one of the files is changed, which then gets a block of its own.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Final

AT_ONCE: Final = 64 << 20
"""Bytes that one call copies; signals wait for its end."""
BLOCK: Final = 4096
"""A part of a file can be shared if it begins at a multiple of this in both files, on most file systems."""
_CHUNK: Final = 1 << 20
_UNSUPPORTED: Final = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ETXTBSY, errno.EOVERFLOW}
)
"""Errors of file systems, and of pairs of them, between which the kernel does not copy."""


def copy_file(source: Path, target: Path) -> None:
    """Copy the content of a file, which replaces that of `target`."""
    with source.open("rb") as old, target.open("wb") as new:
        append_part(old.fileno(), 0, os.fstat(old.fileno()).st_size, new.fileno())


def append_part(source: int, start: int, stop: int, target: int) -> None:
    """Write a part of an open file at the position of another one.

    Raises:
        EOFError: The file ends before.
    """
    start = _copied_by_kernel(source, start, stop, target)
    while start < stop:
        chunk = os.pread(source, min(_CHUNK, stop - start), start)
        if not chunk:
            raise EOFError("the file became shorter")
        start += len(chunk)
        while chunk:
            chunk = chunk[os.write(target, chunk) :]


def _copied_by_kernel(source: int, start: int, stop: int, target: int) -> int:
    """Copy as much as the kernel does; returns the position of the rest."""
    if sys.platform != "linux":
        return start
    while start < stop:
        try:
            copied = os.copy_file_range(source, target, min(AT_ONCE, stop - start), start)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            break
        if not copied:
            break
        start += copied
    return start
