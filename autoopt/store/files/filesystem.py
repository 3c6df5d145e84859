"""What a folder lies on, and writing so that a power cut cannot undo it."""

from __future__ import annotations

import os
from pathlib import Path

from autoopt.errors import InputError

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "fuse.glusterfs", "lustre"}
) | {
    "fuse.sshfs",
    "fuse.s3fs",
    "beegfs",
    "ocfs2",
    "gfs2",
}


def filesystem_of(path: Path, mounts: str | None = None) -> str:
    """The type of file system that `path` lies on, as Linux names it; empty where that cannot be told.

    Args:
        mounts: text in the form of `/proc/self/mounts`, which it is by default.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text()
        except OSError:
            return ""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def refuse_network_filesystem(file: Path, mounts: str | None = None) -> None:
    """SQLite's write-ahead log needs memory shared between its users, which network file systems do not give.

    Raises:
        InputError: `file` would lie on one.
    """
    kind = filesystem_of(file, mounts)
    if kind in NETWORK:
        raise InputError(
            f"SQLite does not work on the network file system {kind}",
            where=str(file),
            remedy="set AUTOOPT_HOME to a folder on a local disk, or AUTOOPT_DB_URL to a PostgreSQL database",
        )


def sync_folder(folder: Path) -> None:
    """Make entries of `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(file: Path) -> None:
    """Make the bytes of `file` durable."""
    sync_folder(file)  # the same call: a handle is a handle
