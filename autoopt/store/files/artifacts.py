"""Models as files: content-addressed folders that are whole or not there.

    <root>/<first two digits>/<digest>/model.onnx      and external data files beside it
    <root>/.tmp/…                                      what is being written; never read
    <root>/.lock                                       shared by writers and readers for an instant, alone by deletion

A folder's modification time says when it was last used.
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
from autoopt.store.files.filesystem import sync_file, sync_folder
from autoopt.store.records import ArtifactRecord

Print: TypeAlias = tuple[tuple[str, int, int, int], ...]
TEMPORARY: Final = ".tmp"
TOUCH_SECONDS: Final = 60.0
"""How stale the time of last use may become while an artifact is in use."""


class ArtifactLost(SystemFailure):
    """An artifact's files are missing or are not what was stored; `digest` names it."""

    def __init__(self, digest: str, what: str, where: str) -> None:
        self.digest = digest
        super().__init__(what, where=where, remedy="autoopt store verify --repair makes it again")


class ArtifactFiles:
    """The artifact folder. Safe for any number of threads and processes, also when they are killed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._verified: dict[str, Print] = {}
        self._touched: dict[str, float] = {}

    def folder(self, digest: str) -> Path:
        return self.root / digest[:2] / digest

    def put(self, source: Path, digest: str | None = None, *, consume: bool = False) -> ArtifactRecord:
        """Store the files of `source`; see `ArtifactStore.put`. What is there already, and intact, stays."""
        try:
            found = self._put(source, digest, consume)
        except OSError as error:
            raise SystemFailure(f"the artifact cannot be stored: {error.strerror}", where=str(self.root)) from None
        files = {name: path.stat().st_size for name, path in files_in(self.folder(found)).items()}
        return ArtifactRecord(found, sum(files.values()), files)

    def _put(self, source: Path, digest: str | None, consume: bool) -> str:
        temporary = Path(tempfile.mkdtemp(dir=self._temporary()))
        try:
            self._copy(source, temporary, consume)
            reached("after copy")
            found = digest_folder(temporary)
            if digest is not None and digest != found:
                raise SystemFailure(f"is {found}, not {digest} as was said", where=str(source))
            self._sync(temporary)
            reached("after fsync")
            self._place(temporary, found)
            reached("after rename")
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return found

    def path(self, digest: str) -> Path:
        """The verified model file; marks it as used.

        Raises:
            ArtifactLost: missing, or its bytes are not those of `digest`.
        """
        folder = self.folder(digest)
        self._touch(folder, digest)
        try:
            seen = fingerprint(folder)
            if self._verified.get(digest) != seen:
                if not seen or digest_folder(folder) != digest:
                    raise ArtifactLost(digest, "the artifact is damaged", str(folder))
                self._verified[digest] = seen
            return model_in(folder)
        except FileNotFoundError:
            raise ArtifactLost(digest, "the artifact is missing", str(folder)) from None

    def intact(self, digest: str) -> bool:
        """Whether the files are there and are what they should be, read anew."""
        try:
            return digest_folder(self.folder(digest)) == digest
        except Exception:  # unreadable, empty, not regular: whatever it is, it is not the artifact
            return False

    def digests(self) -> set[str]:
        """The digests that have a folder."""
        return {f.name for f in self.root.glob("[0-9a-f][0-9a-f]/*") if len(f.name) == 64}

    def remove(self, digest: str) -> None:
        """Take an artifact away. To be called within `alone`."""
        trash = Path(tempfile.mkdtemp(dir=self._temporary()))
        with suppress(FileNotFoundError):
            os.rename(self.folder(digest), trash / digest)
        self._verified.pop(digest, None)
        self._touched.pop(digest, None)
        shutil.rmtree(trash, ignore_errors=True)

    def now(self) -> float:
        """The file system's own clock, which says when things were used."""
        with tempfile.TemporaryFile(dir=self._temporary()) as new:
            return os.fstat(new.fileno()).st_mtime

    def idle(self, paths: Iterable[Path]) -> dict[Path, float]:
        """Seconds since each of `paths`, or anything in it, was last used or written; what is not there is left out."""
        now, found = self.now(), {}
        for path in paths:
            with suppress(FileNotFoundError):
                found[path] = now - max(p.stat().st_mtime for p in (path, *path.rglob("*")))
        return found

    def leftovers(self) -> list[Path]:
        """What writers that were killed left behind, and what writers are writing now."""
        return list(self._temporary().iterdir())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold off everyone who is about to use or store an artifact."""
        with self._locked(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with open(self.root / ".lock", "a") as file:
            fcntl.flock(file, kind)
            yield

    def _temporary(self) -> Path:
        folder = self.root / TEMPORARY
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _copy(self, source: Path, temporary: Path, consume: bool) -> None:
        for name, path in files_in(source).items():
            target = temporary / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if consume and path.stat().st_nlink == 1 and path.stat().st_dev == temporary.stat().st_dev:
                os.rename(path, target)
            else:
                shutil.copyfile(path, target)

    def _sync(self, temporary: Path) -> None:
        for path in files_in(temporary).values():
            path.chmod(0o444)
            sync_file(path)
        for folder in [f for f in temporary.rglob("*") if f.is_dir()]:
            sync_folder(folder)
        temporary.chmod(0o755)
        sync_folder(temporary)

    def _place(self, temporary: Path, digest: str) -> None:
        final = self.folder(digest)
        with self._locked(fcntl.LOCK_SH):
            new = not final.parent.exists()
            final.parent.mkdir(parents=True, exist_ok=True)
            if not self._rename(temporary, final):
                if self.intact(digest):
                    os.utime(final)
                    return
                self.remove(digest)  # damaged: ours replaces it
                self._rename(temporary, final)
            sync_folder(final.parent)
            if new:
                sync_folder(self.root)

    @staticmethod
    def _rename(source: Path, target: Path) -> bool:
        try:
            os.rename(source, target)
        except OSError:
            if not target.exists():
                raise
            return False
        return True

    def _touch(self, folder: Path, digest: str) -> None:
        if time.monotonic() - self._touched.get(digest, -TOUCH_SECONDS) < TOUCH_SECONDS:
            return
        with suppress(OSError), self._locked(fcntl.LOCK_SH):  # a store that cannot be written can still be read
            os.utime(folder)
        self._touched[digest] = time.monotonic()


def fingerprint(folder: Path) -> Print:
    """Names, sizes, times and inodes: what tells, without reading them, that files are still the same."""
    stats = [(name, path.stat()) for name, path in files_in(folder).items()] if folder.is_dir() else []
    return tuple((name, s.st_size, s.st_mtime_ns, s.st_ino) for name, s in stats)
