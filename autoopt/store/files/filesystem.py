"""File systems: their kinds, and writing so that a power cut cannot undo it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from autoopt.errors import InputError

NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "fuse.glusterfs", "lustre"}
    | {"fuse.sshfs", "fuse.s3fs", "beegfs", "ocfs2", "gfs2"}
)
"""Types of network file systems, as Linux names them."""


def filesystem_of(path: Path, mounts: str | None = None) -> str:
    """The type of the file system that holds `path`, as Linux names it; empty if it cannot be read.

    `mounts` is text in the form of `/proc/self/mounts`, which is the default. `path` need not exist.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text()
        except OSError:
            return ""
    real = Path(os.path.realpath(path))
    deepest, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        # Of mounts at one point, the last one covers the others.
        if real.is_relative_to(point) and len(point) >= len(deepest):
            deepest, kind = point, fields[2]
    return kind


def refuse_network_filesystem(file: Path, mounts: str | None = None) -> None:
    """Refuse a place for SQLite whose write-ahead log its users could not share.

    The log needs shared memory, which network file systems do not provide.

    Raises:
        InputError: `file` would be on a network file system.
    """
    kind = filesystem_of(file, mounts)
    if kind in NETWORK:
        raise InputError(
            f"SQLite does not work on the network file system {kind}",
            where=str(file),
            remedy="set AUTOOPT_HOME to a folder on a local disk, or AUTOOPT_DB_URL to a PostgreSQL database",
        )


def sync(path: Path) -> None:
    """Make the bytes of a file, or the entries of a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
