"""Split models: a graph whose larger weights are files of their own, which all graphs that have them share.

<folder>/<digest>.onnx                 the graph; its larger weights are external data
<folder>/<digest>.json                 the `Manifest`: how the model's own files are put together, byte by byte
<folder>/weights/<2 digits>/<sha256>   the bytes of one weight, or whatever else the model's own files hold

The digest is that of the model's own files, so a model has one identity wherever it lies. Graphs and weights share a
folder because onnx refuses external data that is a link, has several names, or lies outside of the graph's folder.

Nothing here parses a model, so the main process may use it. `splitting` takes models apart, in workers.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from autoopt.json_codec import from_json
from autoopt.model.files import MODEL, append_part, digest_file, digest_of_contents
from autoopt.working_folder import replacing, working_folder

LOCK: Final = ".lock"
"""Name of the lock file beside a folder of split models."""
WEIGHTS: Final = "weights"
CHUNK: Final = 1 << 20
"""Bytes that are read at once."""
RENEWED_AFTER: Final = 1800.0
"""Seconds after which a use of a weight is recorded again."""
FOLDER: Final = "split"
"""Name of a folder of split models."""
GRAPH: Final = ".onnx"
MANIFEST: Final = ".json"
DIGITS: Final = 64
"""Length of a digest."""
_LOCATION: Final = re.compile(rf"{WEIGHTS}/[0-9a-f]{{2}}/([0-9a-f]{{64}})")


class Damaged(Exception):
    """The files of a split model do not fit each other."""


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

    def add(self, content: bytes, *, replace: bool = False) -> Slice:
        """Store a weight, unless it is there and `replace` is off. It is durable afterwards."""
        weight = Slice(hashlib.sha256(content).hexdigest(), 0, len(content))
        if replace or not self.renew(weight):
            path = self.path(weight.digest)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, content)
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
            with self.path(part.digest).open("rb") as file:
                file.seek(part.start)
                left = part.stop - part.start
                while left:
                    chunk = file.read(min(CHUNK, left))
                    if not chunk:
                        raise EOFError("a weight is too short")
                    left -= len(chunk)
                    yield chunk

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
    with replacing(path) as new, new.open("wb") as file:
        file.write(content)
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


@dataclass(frozen=True)
class Manifest:
    """The content of a split model."""

    graph: str
    """The SHA-256 of the graph."""
    weights: Mapping[str, int]
    """The sizes of all files of weights by their digests."""
    files: Mapping[str, tuple[Slice, ...]]
    """The model's own files."""


def graph_path(folder: Path, digest: str) -> Path:
    """The graph of the split model with this digest in a folder of split models, which may not exist."""
    return folder / f"{digest}{GRAPH}"


def graphs_in(folder: Path) -> Iterator[Path]:
    """The graphs of all models in a folder of split models."""
    return (graph for graph in folder.glob(f"[0-9a-f]*{GRAPH}") if len(graph.stem) == DIGITS)


def stored_files(graph: Path) -> list[Path]:
    """The files of a split model apart from its weights, as far as they exist."""
    return [path for path in (graph, graph.with_suffix(MANIFEST)) if path.exists()]


def remove(graph: Path) -> None:
    """Remove a split model, but not its weights."""
    for path in stored_files(graph):
        path.unlink(missing_ok=True)


def is_split(model: str | os.PathLike[str]) -> bool:
    """True if this is the graph of a split model."""
    path = Path(os.path.normpath(model))
    return path.parent.name == FOLDER and path.suffix == GRAPH and (path.parent / WEIGHTS).is_dir()


def location_of(digest: str) -> str:
    """The location of a weight as external data of a split model's graph."""
    return f"{WEIGHTS}/{digest[:2]}/{digest}"


def weight_at(location: str) -> str:
    """The digest of the weight that external data at a location are; empty for other external data."""
    match = _LOCATION.fullmatch(location)
    return match[1] if match is not None else ""


def manifest_of(graph: Path) -> Manifest:
    """The manifest of a split model, which is read once.

    Raises:
        Damaged, FileNotFoundError: As `_read_manifest`.
    """
    path = graph.with_suffix(MANIFEST)
    return _manifest(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _manifest(path: Path, _modified: int) -> Manifest:  # the time tells versions of the file apart
    return _read_manifest(path)


def _read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        Damaged: It cannot be understood.
        FileNotFoundError: It is missing.
    """
    try:
        return from_json(Manifest, json.loads(path.read_bytes()))
    except ValueError as error:
        raise Damaged(f"{path.name}: {error}") from None


def weights_of(graph: Path) -> Mapping[str, int]:
    """The sizes of the weights of a split model by their digests; empty if it is not there or damaged."""
    try:
        return manifest_of(graph).weights
    except (FileNotFoundError, Damaged):
        return {}


def came_with_external_data(graph: Path) -> bool:
    """True if a split model had external data before."""
    return len(manifest_of(graph).files) > 1


def sizes_of(graph: Path) -> dict[str, int]:
    """The bytes of each of the own files of a split model, by name."""
    files = manifest_of(graph).files
    return {name: sum(part.stop - part.start for part in parts) for name, parts in files.items()}


def digest_files(graph: Path) -> str:
    """Compute the digest of the own files of a split model, as `digest_folder` does. Reads all weights.

    Raises:
        Damaged: The model's files do not fit each other.
        FileNotFoundError: A file is missing.
    """
    manifest, weights = _read_manifest(graph.with_suffix(MANIFEST)), WeightFiles(graph.parent)
    if digest_file(graph) != manifest.graph:
        raise Damaged("the graph has changed")
    for digest in manifest.weights.keys() - {part.digest for parts in manifest.files.values() for part in parts}:
        if digest_file(weights.path(digest)) != digest:
            raise Damaged("a weight has changed")
    try:
        return digest_of_contents({name: weights.read(parts) for name, parts in manifest.files.items()})
    except EOFError as error:
        raise Damaged(str(error)) from None


def write_files(graph: Path, folder: Path) -> None:
    """Write the own files of a split model into a folder.

    Raises:
        Damaged, EOFError: The model's files do not fit each other.
        FileNotFoundError: A file is missing.
    """
    weights = WeightFiles(graph.parent)
    for name, parts in manifest_of(graph).files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        weights.write(parts, target)


@contextmanager
def beside_weights(graph: bytes, folder: Path) -> Iterator[Path]:
    """A graph as a file in a folder of split models, whose weights it may refer to, within the context."""
    path = folder / f".{os.urandom(8).hex()}{GRAPH}"
    path.write_bytes(graph)
    try:
        yield path
    finally:
        path.unlink()


@contextmanager
def as_deployed(model: Path) -> Iterator[Path]:
    """A model as its users will open it: a split one without external data as one file, in memory on Linux.

    One that came with external data is as good as it is: the runtime maps the weights in either case.
    """
    if not is_split(model) or came_with_external_data(model):
        yield model
        return
    if sys.platform != "linux":
        with working_folder() as folder:
            write_files(model, folder)
            yield folder / MODEL
        return
    with open(os.memfd_create(MODEL), "wb") as file:
        file.writelines(WeightFiles(model.parent).read(manifest_of(model).files[MODEL]))
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")
