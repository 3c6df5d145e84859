"""Artifacts as files: content-addressed folders that are either complete or absent.

    <root>/<first two digits>/<digest>/model.onnx      with external data files beside it
    <root>/.tmp/…                                      folders that are being written; never read
    <root>/.lock                                       held briefly: shared by users and writers, alone by deletion

The modification time of a folder is the time of its last use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from autoopt.errors import SystemFailure
from autoopt.model.files import digest_folder, files_in, model_in
from autoopt.store.faults import reached
from autoopt.store.files.filesystem import sync
from autoopt.store.records import ArtifactRecord

Fingerprint: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Name, size, modification time and inode of each file, which show a change without reading it."""
TEMPORARY: Final = ".tmp"
TOUCH_SECONDS: Final = 60.0
"""Maximum age of the recorded time of last use while an artifact is in use."""


class ArtifactLost(SystemFailure):
    """The files of an artifact are missing or damaged; `digest` names it."""

    def __init__(self, digest: str, what: str, where: str) -> None:
        self.digest = digest
        super().__init__(what, where=where, remedy="autoopt store verify --repair makes it again")


class ArtifactFiles:
    """The artifact folder. Safe for any number of threads and processes, even if they are killed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._verified: dict[str, Fingerprint] = {}
        self._touched: dict[str, float] = {}

    def folder(self, digest: str) -> Path:
        """The folder of an artifact, which may not exist."""
        return self.root / digest[:2] / digest

    def put(self, source: Path, digest: str | None = None, *, consume: bool = False) -> ArtifactRecord:
        """Store the files of `source`; see `ArtifactStore.put`. An intact artifact that exists already stays."""
        try:
            actual = self._put(source, digest, consume)
        except OSError as error:
            raise SystemFailure(f"the artifact cannot be stored: {error.strerror}", where=str(self.root)) from None
        return self.record(actual)

    def record(self, digest: str) -> ArtifactRecord:
        """Describe the files of an artifact that exists."""
        sizes = {name: path.stat().st_size for name, path in files_in(self.folder(digest)).items()}
        return ArtifactRecord(digest, sum(sizes.values()), sizes)

    def path(self, digest: str) -> Path:
        """The verified model file; marks it as used.

        Raises:
            ArtifactLost: The files are missing or do not have the digest.
        """
        folder = self.folder(digest)
        self._touch(folder, digest)
        try:
            fingerprint = fingerprint_of(folder)
            if not fingerprint:
                raise ArtifactLost(digest, "the artifact is missing", str(folder))
            if self._verified.get(digest) != fingerprint:
                if digest_folder(folder) != digest:
                    raise ArtifactLost(digest, "the artifact is damaged", str(folder))
                self._verified[digest] = fingerprint
            return model_in(folder)
        except FileNotFoundError:
            raise ArtifactLost(digest, "the artifact is missing", str(folder)) from None

    def is_intact(self, digest: str) -> bool:
        """True if the files exist and have the digest; reads all of them."""
        try:
            return digest_folder(self.folder(digest)) == digest
        except Exception:  # unreadable, empty, not regular: in any case it is not the artifact
            return False

    def digests(self) -> set[str]:
        """The digests that have a folder."""
        return {folder.name for folder in self.root.glob("[0-9a-f][0-9a-f]/*") if len(folder.name) == 64}

    def remove(self, digest: str) -> None:
        """Remove an artifact. The caller holds `exclusive`."""
        # Renaming first keeps an interrupted removal from leaving half an artifact.
        trash = Path(tempfile.mkdtemp(dir=self._temporary()))
        with suppress(FileNotFoundError):
            os.rename(self.folder(digest), trash / digest)
        self._verified.pop(digest, None)
        self._touched.pop(digest, None)
        shutil.rmtree(trash, ignore_errors=True)

    def idle_seconds(self, paths: Iterable[Path]) -> dict[Path, float]:
        """Seconds since each of `paths`, or anything in it, was used or written; missing paths are left out."""
        # The times of files are on the file system's own clock, which only a new file shows.
        with tempfile.TemporaryFile(dir=self._temporary()) as file:
            now = os.fstat(file.fileno()).st_mtime
        seconds: dict[Path, float] = {}
        for path in paths:
            with suppress(FileNotFoundError):
                seconds[path] = now - max(part.stat().st_mtime for part in (path, *path.rglob("*")))
        return seconds

    def leftovers(self) -> list[Path]:
        """Folders that killed writers left behind or that writers are writing now."""
        return list(self._temporary().iterdir())

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Block everyone who is about to use or store an artifact."""
        with self._locked(fcntl.LOCK_EX):
            yield

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Keep artifacts from being removed meanwhile."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with open(self.root / ".lock", "a") as file:
            # Closing the file releases the lock, and so does the end of the process.
            fcntl.flock(file, kind)
            yield

    def _temporary(self) -> Path:
        folder = self.root / TEMPORARY
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _put(self, source: Path, digest: str | None, consume: bool) -> str:
        temporary = Path(tempfile.mkdtemp(dir=self._temporary()))
        try:
            _copy(source, temporary, consume)
            reached("after copy")
            # That of the copy: the source may have changed while it was copied.
            actual = digest_folder(temporary)
            if digest is not None and digest != actual:
                raise SystemFailure(f"has digest {actual}, not {digest} as expected", where=str(source))
            _make_durable(temporary)
            reached("after fsync")
            fingerprint = fingerprint_of(temporary)
            if self._publish(temporary, actual):
                self._verified[actual] = fingerprint
            reached("after rename")
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return actual

    def _publish(self, temporary: Path, digest: str) -> bool:
        """Move a complete folder to its place; False if an intact artifact is there. A damaged one is replaced."""
        folder = self.folder(digest)
        with self._locked(fcntl.LOCK_SH):
            is_first = not folder.parent.exists()
            folder.parent.mkdir(parents=True, exist_ok=True)
            if not _rename(temporary, folder):
                if self.is_intact(digest):
                    os.utime(folder)
                    return False
                self.remove(digest)
                _rename(temporary, folder)
            # A power cut forgets a folder whose parent was not synced; the row that names the artifact comes next.
            sync(folder.parent)
            if is_first:
                sync(self.root)
        return True

    def _touch(self, folder: Path, digest: str) -> None:
        if time.monotonic() - self._touched.get(digest, -TOUCH_SECONDS) < TOUCH_SECONDS:
            return
        with suppress(OSError), self._locked(fcntl.LOCK_SH):  # a read-only store can still be read
            os.utime(folder)
        self._touched[digest] = time.monotonic()


def fingerprint_of(folder: Path) -> Fingerprint:
    """The fingerprint of the files in a folder; empty if there are none."""
    if not folder.is_dir():
        return ()
    stats = [(name, path.stat()) for name, path in files_in(folder).items()]
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats)


def _copy(source: Path, temporary: Path, consume: bool) -> None:
    device = temporary.stat().st_dev
    for name, path in files_in(source).items():
        target = temporary / name
        target.parent.mkdir(parents=True, exist_ok=True)
        stat = path.stat()
        # A file with other names may change under them.
        if consume and stat.st_nlink == 1 and stat.st_dev == device:
            os.rename(path, target)
        else:
            shutil.copyfile(path, target)


def _make_durable(temporary: Path) -> None:
    for path in files_in(temporary).values():
        # Sessions and users open these files where they are: nobody may change what the digest names.
        path.chmod(0o444)
        sync(path)
    for path in temporary.rglob("*"):
        if path.is_dir():
            sync(path)
    temporary.chmod(0o755)
    sync(temporary)


def _rename(source: Path, target: Path) -> bool:
    """Rename a folder; False if the target exists."""
    try:
        os.rename(source, target)
    except OSError:
        if not target.exists():
            raise
        return False
    return True
