"""Folders of files that make up an artifact: their fingerprints, copies of them, and their durability."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from autoopt.errors import InputError
from autoopt.model.file_copies import copy_file
from autoopt.model.files import digest_folder, files_in
from autoopt.store.files.filesystem import sync

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
