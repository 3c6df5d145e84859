"""File systems and folders: their kinds, fingerprints, copies, and writing so that a power cut cannot undo it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TypeAlias

from autoopt.errors import InputError
from autoopt.model.files import copy_file, digest_folder, files_in

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


Fingerprint: TypeAlias = tuple[tuple[str | int, ...], ...]
"""Name, size, modification time and inode of each file, which show a change without reading it."""


def fingerprint_of(folder: Path) -> Fingerprint:
    """The fingerprint of the files in a folder; empty if there are none."""
    if not folder.is_dir():
        return ()
    return tuple(entry_of(name, path.stat()) for name, path in files_in(folder).items())


def entry_of(name: str, stat: os.stat_result) -> tuple[str, int, int, int]:
    """The entry of a file in a fingerprint."""
    return name, stat.st_size, stat.st_mtime_ns, stat.st_ino


def has_digest(folder: Path, digest: str) -> bool:
    """True if the files in a folder have this digest."""
    try:
        return digest_folder(folder) == digest
    except (InputError, OSError):
        return False


def copy_files(source: Path, folder: Path, *, consume: bool = False) -> None:
    """Copy the files of an artifact into a folder; with `consume`, move those that nobody else may change."""
    device = folder.stat().st_dev
    for name, path in files_in(source).items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        stat = path.stat()
        # A file with other names may change under them.
        if consume and stat.st_nlink == 1 and stat.st_dev == device:
            os.rename(path, target)
        else:
            copy_file(path, target)


def make_durable(temporary: Path) -> None:
    """Make the files in a folder read-only and durable."""
    for path in files_in(temporary).values():
        # Sessions and users open these files where they are: nobody may change what the digest names.
        path.chmod(0o444)
        sync(path)
    for path in temporary.rglob("*"):
        if path.is_dir():
            sync(path)
    sync(temporary)


def rename_folder(source: Path, target: Path) -> bool:
    """Rename a folder; False if the target exists."""
    try:
        os.rename(source, target)
    except OSError:
        if not target.exists():
            raise
        return False
    return True
