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
from typing import BinaryIO, Final, Protocol, TypeAlias

from autoopt.model.file_copies import BLOCK, append_part
from autoopt.working_folder import replacing

LOCK: Final = ".lock"
"""Name of the lock file beside a folder of split models."""
WEIGHTS: Final = "weights"
CHUNK: Final = 1 << 20
"""Bytes that are read at once."""
READ_ONCE: Final = 64 << 20
"""Weights of no more bytes are held in memory while they are digested and written."""
RENEWED_AFTER: Final = 1800.0
"""Seconds after which a use of a weight is recorded again."""


class Bytes(Protocol):
    """Bytes that can be read in parts."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes | memoryview: ...


@dataclass(frozen=True)
class Weight:
    """The content of a file of weights."""

    digest: str
    size: int


Piece: TypeAlias = bytes | memoryview | Weight
"""A part of a file."""


class NotSplit(Exception):
    """The model is not split, because it is small or its files are unusual."""


class FileBytes:
    """The bytes of an open file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> bytes:
        start, stop, _ = part.indices(self._size)
        data = os.pread(self._descriptor, max(0, stop - start), start)
        while len(data) < stop - start:  # the kernel reads at most 2 GiB at once
            more = os.pread(self._descriptor, stop - start - len(data), start + len(data))
            if not more:
                raise NotSplit("the file became shorter")
            data += more
        return data

    def append_to(self, target: int, start: int, stop: int) -> None:
        """Write a part at the position of an open file, which shares its blocks where the file system can."""
        try:
            append_part(self._descriptor, start, stop, target)
        except EOFError as error:
            raise NotSplit(str(error)) from None


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

    def add(self, data: Bytes, start: int, stop: int, *, replace: bool = False) -> Weight:
        """Store a part of `data`, unless it is there and `replace` is off. It is durable afterwards."""
        is_shareable = isinstance(data, FileBytes) and start % BLOCK == 0
        if stop - start <= READ_ONCE and not is_shareable:
            data, start, stop = data[start:stop], 0, stop - start
        digest = hashlib.sha256()
        for chunk in chunks_of(data, start, stop):
            digest.update(chunk)
        weight = Weight(digest.hexdigest(), stop - start)
        if replace or not self.renew(weight):
            path = self.path(weight.digest)
            path.parent.mkdir(parents=True, exist_ok=True)
            with _new_file(path) as file:
                _write_part(data, start, stop, file)
        return weight

    def renew(self, weight: Weight) -> bool:
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
        return status.st_size == weight.size

    def read(self, pieces: Iterable[Piece]) -> Iterator[bytes | memoryview]:
        """The bytes of pieces, in chunks.

        Raises:
            FileNotFoundError: A weight is missing.
        """
        for piece in pieces:
            if not isinstance(piece, Weight):
                yield piece
                continue
            with self.path(piece.digest).open("rb", buffering=0) as file:
                while chunk := file.read(CHUNK):
                    yield chunk

    def write(self, pieces: Iterable[Piece], file: BinaryIO) -> None:
        """Write pieces; the file shares blocks with the weights where the file system can.

        Raises:
            FileNotFoundError: A weight is missing.
        """
        for piece in pieces:
            if isinstance(piece, Weight):
                with self.path(piece.digest).open("rb", buffering=0) as weight:
                    data = FileBytes(weight.fileno())
                    _write_part(data, 0, len(data), file)
            else:
                file.write(piece)


def _write_part(data: Bytes, start: int, stop: int, file: BinaryIO) -> None:
    if isinstance(data, FileBytes):
        file.flush()
        data.append_to(file.fileno(), start, stop)
    else:
        file.writelines(chunks_of(data, start, stop))


def chunks_of(data: Bytes, start: int, stop: int) -> Iterator[bytes | memoryview]:
    """A part of `data`, of `CHUNK` bytes at most at once."""
    for position in range(start, stop, CHUNK):
        yield data[position : min(position + CHUNK, stop)]


@contextmanager
def held(root: Path, kind: int) -> Iterator[None]:
    """Hold the lock of a store's files: `fcntl.LOCK_SH` keeps files from being removed, `LOCK_EX` everyone away."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / LOCK, "a") as file:
        # Closing the file releases the lock, and so does the end of the process.
        fcntl.flock(file, kind)
        yield


def write_durably(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a read-only file that is either complete or absent."""
    with _new_file(path) as file:
        file.writelines(chunks)


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


def total_size(pieces: Iterable[Piece]) -> int:
    """The bytes of pieces together."""
    return sum(piece.size if isinstance(piece, Weight) else len(piece) for piece in pieces)
