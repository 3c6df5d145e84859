"""Model files as bytes: their digests, sizes and copies, without looking inside.

Copies share their blocks with the original where the file system can (Btrfs, XFS and others): a shared block costs no
disk until one of the files is changed, which then gets a block of its own.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from autoopt.errors import InputError
from autoopt.model.candidate import digest_json
from autoopt.model.model_set import MODEL_SET

MODEL = "model.onnx"
ORT_MODEL = "model.ort"
"""Names of the model in its folder; external data files lie beside it."""


def digest_file(path: str | os.PathLike[str]) -> str:
    """Compute the sha256 of a file's bytes, in hexadecimal."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        error.filename = path  # an error while reading names no file
        raise


def version_of(status: os.stat_result) -> tuple[int, ...]:
    """The identity of a version of a file, without reading it."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def known_digest(path: Path) -> str:
    """The sha256 of a file, which is read once for each of its versions."""
    return _digest_version(str(path), version_of(path.stat()))


@lru_cache(maxsize=1 << 17)  # a folder of images may hold 100,000 files
def _digest_version(path: str, _version: tuple[int, ...]) -> str:
    return digest_file(path)


def model_in(folder: str | os.PathLike[str]) -> Path:
    """Find the model file of an artifact folder: `model.onnx`, `model.ort` in ORT format, or a model set's description.

    Raises:
        InputError: there is none.
    """
    for name in (MODEL_SET, MODEL, ORT_MODEL):
        path = Path(folder, name)
        if path.is_file():
            return path
    raise InputError(f"no {MODEL} in it", where=str(folder))


def files_in(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """List all files below `folder` by their relative name (with `/`), sorted by name.

    Raises:
        InputError: an entry is neither a folder nor a regular file.
    """
    files: dict[str, Path] = {}
    root = Path(folder)
    for path in sorted(root.rglob("*"), key=lambda entry: entry.relative_to(root).as_posix()):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            raise InputError("not a regular file", where=str(path))
        files[path.relative_to(root).as_posix()] = path
    return files


def digest_folder(path: str | os.PathLike[str]) -> str:
    """Compute the digest that names an artifact.

    This is the sha256 of its one file, or, with external data, of the sorted list of each file's name and sha256.

    Raises:
        InputError: the folder is empty, or an entry is not a regular file.
    """
    files = files_in(path)
    if not files:
        raise InputError("the folder is empty", where=str(path))
    if len(files) == 1:
        return digest_file(next(iter(files.values())))
    return digest_json([[name, digest_file(file)] for name, file in files.items()])


def digest_of_contents(files: Mapping[str, Iterable[bytes | memoryview]]) -> str:
    """Compute the digest of files given as chunks by their name, as `digest_folder` does."""
    digests: list[list[str]] = []
    for name, chunks in sorted(files.items()):
        digest = hashlib.sha256()
        for chunk in chunks:
            digest.update(chunk)
        digests.append([name, digest.hexdigest()])
    return digests[0][1] if len(digests) == 1 else digest_json(digests)


def bytes_in(path: str | os.PathLike[str]) -> int:
    """Sum up the bytes of all files in a model's folder."""
    return sum(file.stat().st_size for file in files_in(path).values())


def is_convertible(name: str) -> bool:
    """True if a source model must be converted to ONNX, by its name alone: an exported program or a script."""
    return split_source(name)[0].endswith((".pt2", ".py"))


def split_source(name: str) -> tuple[str, str]:
    """Split a source model's name into file and function: `net.py:build` -> `net.py`, `build`.

    The function is empty for a file alone.
    """
    file, _, function = name.rpartition(":")
    if file.endswith(".py") and function.isidentifier():
        return file, function
    return name, ""


_LOCATION: Final = re.compile(rb"\x0a\x08location\x12([\x01-\x7f]|[\x80-\xff][\x01-\x7f])", re.DOTALL)
"""Entry of a tensor (StringStringEntryProto) that names a file, up to the length of the name, which is a varint."""


def external_names(model: Path) -> frozenset[str]:
    """The files of external data that a model names, without those that lead out of its folder.

    Raises:
        OSError: The model cannot be read.
    """
    with model.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # cannot be mapped
            return frozenset()
        names: set[str] = set()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for match in _LOCATION.finditer(data):
                low, high = match[1][0], match[1][-1]
                size = low if len(match[1]) == 1 else (low & 127) | high << 7
                names.add(os.fsdecode(data[match.end() : match.end() + size]))
    return frozenset(name for name in names if name and not name.startswith("/") and ".." not in Path(name).parts)


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
