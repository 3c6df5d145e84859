"""Files of weights, each named by its content, in a folder of split models."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from autoopt.model.file_copies import append_part
from autoopt.working_folder import replacing

LOCK: Final = ".lock"
"""Name of the lock file beside a folder of split models."""
WEIGHTS: Final = "weights"
CHUNK: Final = 1 << 20
"""Bytes that are read at once."""
RENEWED_AFTER: Final = 1800.0
"""Seconds after which a use of a weight is recorded again."""


@dataclass(frozen=True)
class FilePart:
    """A part of an open file."""

    descriptor: int
    start: int
    stop: int


Content: TypeAlias = bytes | FilePart


@dataclass(frozen=True)
class Slice:
    """A part of a file of weights."""

    digest: str
    start: int
    stop: int


class WeightFiles:
    """The weights in a folder of split models."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / WEIGHTS

    def path(self, digest: str) -> Path:
        """The file of a weight, which may not exist."""
        return self._folder / digest[:2] / digest

    def all(self) -> Iterator[Path]:
        """The files of all weights."""
        return self._folder.glob("[0-9a-f][0-9a-f]/" + "[0-9a-f]" * 64)

    def add(self, content: Content, *, replace: bool = False) -> Slice:
        """Store a weight, unless it is there and `replace` is off. It is durable afterwards.

        Raises:
            EOFError: The file became shorter.
        """
        digest, size = hashlib.sha256(), 0
        for chunk in chunks_of(content):
            digest.update(chunk)
            size += len(chunk)
        weight = Slice(digest.hexdigest(), 0, size)
        if replace or not self.renew(weight):
            path = self.path(weight.digest)
            path.parent.mkdir(parents=True, exist_ok=True)
            with _new_file(path) as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    append_part(content.descriptor, content.start, content.stop, file.fileno())
        return weight

    def renew(self, weight: Slice) -> bool:
        """Record that a weight is used; False if it does not exist."""
        path = self.path(weight.digest)
        try:
            status = path.stat()
            # Not at each use, because everyone verifies a file anew whose time has changed.
            if time.time() - status.st_mtime > RENEWED_AFTER:
                with suppress(PermissionError):  # the store of another user
                    os.utime(path)
        except FileNotFoundError:
            return False
        return status.st_size == weight.stop

    def read(self, slices: Iterable[Slice]) -> Iterator[bytes]:
        """The bytes of parts of weights, in chunks.

        Raises:
            FileNotFoundError: A weight is missing.
            EOFError: A weight is too short.
        """
        for part in slices:
            with self.path(part.digest).open("rb", buffering=0) as file:
                yield from chunks_of(FilePart(file.fileno(), part.start, part.stop))

    def write(self, slices: Iterable[Slice], target: Path) -> None:
        """Write parts of weights to a file, which shares blocks with them where the file system can.

        Raises:
            FileNotFoundError: A weight is missing.
            EOFError: A weight is too short.
        """
        with target.open("wb", buffering=0) as file:
            for part in slices:
                with self.path(part.digest).open("rb", buffering=0) as weight:
                    append_part(weight.fileno(), part.start, part.stop, file.fileno())


def chunks_of(content: Content) -> Iterator[bytes]:
    """Some content, of `CHUNK` bytes at most at once if it is in a file.

    Raises:
        EOFError: The file ends before.
    """
    if isinstance(content, bytes):
        yield content
        return
    position = content.start
    while position < content.stop:
        chunk = os.pread(content.descriptor, min(CHUNK, content.stop - position), position)
        if not chunk:
            raise EOFError("the file became shorter")
        position += len(chunk)
        yield chunk


@contextmanager
def held(root: Path, kind: int) -> Iterator[None]:
    """Hold the lock of a store's files: `fcntl.LOCK_SH` keeps files from being removed, `LOCK_EX` everyone away."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / LOCK, "a") as file:
        # Closing the file releases the lock, and so does the end of the process.
        fcntl.flock(file, kind)
        yield


def write_durably(path: Path, content: bytes) -> None:
    """Write a read-only file that is either complete or absent."""
    with _new_file(path) as file:
        file.write(content)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which is read-only, durable and at its place after the context, or absent."""
    with replacing(path) as new, new.open("wb") as file:
        yield file
        file.flush()
        os.fchmod(file.fileno(), 0o444)
        os.fsync(file.fileno())
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
