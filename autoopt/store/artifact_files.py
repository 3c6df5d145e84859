"""Artifacts as files: content-addressed, and either complete or absent.

    <root>/<first two digits>/<digest>/model.onnx      with external data files beside it
    <root>/split/<digest>.onnx                         a model of many weights, see `autoopt.model.split`
    <root>/split/weights/…                             the weights of all split models, each once
    <root>/.tmp/…                                      folders that are being written; never read
    <root>/.lock                                       held briefly: shared by users and writers, alone by deletion

The modification time of a folder, or of the main file of a split artifact, is the time of its last use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from autoopt.errors import SystemFailure
from autoopt.model import splitting
from autoopt.model.candidate import digest_json
from autoopt.model.files import digest_file, digest_folder, files_in, model_in
from autoopt.model.model_set import MODEL_SET
from autoopt.model.split import (
    DIGITS,
    FOLDER,
    Damaged,
    WeightFiles,
    digest_files,
    graph_path,
    graphs_in,
    held,
    is_split,
    manifest_of,
    remove,
    sizes_of,
    stored_files,
    weights_of,
    write_files,
)
from autoopt.store.faults import reached
from autoopt.store.filesystem import (
    Fingerprint,
    copy_files,
    entry_of,
    fingerprint_of,
    has_digest,
    make_durable,
    rename_folder,
    sync,
)
from autoopt.store.records import ArtifactRecord

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
        self.split_folder = root / FOLDER
        self._weights = WeightFiles(self.split_folder)
        self._verified: dict[Path, Fingerprint] = {}
        self._touched: dict[Path, float] = {}

    def folder(self, digest: str) -> Path:
        """The folder of an artifact, which may not exist."""
        return self.root / digest[:2] / digest

    def split(self, digest: str) -> Path:
        """The main file of a split artifact, which may not exist."""
        return graph_path(self.split_folder, digest)

    def places(self, digest: str) -> list[Path]:
        """The folder of an artifact, and its own files if it is split, as far as they exist."""
        main, folder = self.split(digest), self.folder(digest)
        files = stored_files(main)
        return [*files, folder] if folder.exists() else files

    def put(self, source: Path, digest: str | None = None, *, consume: bool = False) -> ArtifactRecord:
        """Store the files of `source`; see `SqlArtifacts.put`. An intact artifact that exists already stays."""
        with self._storing():
            if is_split(source):
                actual = self._take_over(source)
            else:
                actual = self._put_split(source, digest) or self._put(source, digest, consume)
        return self.record(actual)

    def put_set(self, description: bytes, models: Mapping[str, str]) -> ArtifactRecord:
        """Store a set of stored models; see `SqlArtifacts.put_set`."""
        with self._storing():
            folder = self._new_folder()
            try:
                for name, digest in models.items():
                    (folder / name).mkdir()
                    self.path(digest)  # verified
                    self.write(digest, folder / name)
                (folder / MODEL_SET).write_bytes(description)
                return self.put(folder, consume=True)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """Report errors of the system as the user's to mend."""
        try:
            yield
        except OSError as error:
            raise SystemFailure(f"the artifact cannot be stored: {error.strerror}", where=str(self.root)) from None

    def record(self, digest: str) -> ArtifactRecord:
        """Describe the files of an artifact that exists."""
        main = self.split(digest)
        if main.exists():
            sizes = sizes_of(main)
            return ArtifactRecord(digest, sum(sizes.values()), sizes)
        sizes = {name: path.stat().st_size for name, path in files_in(self.folder(digest)).items()}
        return ArtifactRecord(digest, sum(sizes.values()), sizes)

    def path(self, digest: str) -> Path:
        """The verified model file, in a folder with only the files of the artifact; of a split one, the main file.

        Marks it as used.

        Raises:
            ArtifactLost: The files are missing or do not have the digest.
        """
        main, folder = self.split(digest), self.folder(digest)
        place = main if main.exists() else folder
        self._touch(place)
        try:
            if place == main:
                self._verify_split(digest, main)
                return main
            self._verify_folder(digest, folder)
            return model_in(folder)
        except FileNotFoundError:
            raise ArtifactLost(digest, "the artifact or a part of it is missing", str(place)) from None

    def _verify_folder(self, digest: str, folder: Path) -> None:
        fingerprint = fingerprint_of(folder)
        if not fingerprint:
            raise ArtifactLost(digest, "the artifact is missing", str(folder))
        if self._verified.get(folder) != fingerprint:
            if digest_folder(folder) != digest:
                raise ArtifactLost(digest, "the artifact is damaged", str(folder))
            self._verified[folder] = fingerprint

    def _verify_split(self, digest: str, main: Path) -> None:
        try:
            fingerprint = self._fingerprint_of_split(main)
            if self._verified.get(main) != fingerprint:
                if digest_files(main) != digest:
                    raise ArtifactLost(digest, "the artifact is damaged", str(main))
                self._note_verified(main, fingerprint)
        except Damaged:
            raise ArtifactLost(digest, "the artifact is damaged", str(main)) from None

    @contextmanager
    def unpacked(self, digest: str) -> Iterator[Path]:
        """A folder with the files of an artifact within the context.

        Raises:
            ArtifactLost: Files are missing or damaged.
        """
        if not self.split(digest).exists():
            yield self.folder(digest)
            return
        main = self.path(digest)
        with tempfile.TemporaryDirectory(dir=self._temporary()) as folder:
            write_files(main, Path(folder))
            yield Path(folder)

    def write(self, digest: str, folder: Path) -> Path:
        """Copy the files of an artifact into a folder; returns the model file there."""
        main = self.split(digest)
        if main.exists():
            write_files(main, folder)
        else:
            copy_files(self.folder(digest), folder)
        return model_in(folder)

    def exists(self, digest: str) -> bool:
        """True if there are files of an artifact, intact or not."""
        return bool(self.places(digest))

    def is_intact(self, digest: str) -> bool:
        """True if the files exist and have the digest; reads all of them."""
        main = self.split(digest)
        try:
            if main.exists():
                return digest_files(main) == digest
            return digest_folder(self.folder(digest)) == digest
        except Exception:  # unreadable, empty, not regular: in any case it is not the artifact
            return False

    def digests(self) -> set[str]:
        """The digests that have a folder or are split."""
        folders = (folder.name for folder in self.root.glob("[0-9a-f][0-9a-f]/*"))
        split = (graph.stem for graph in graphs_in(self.split_folder))
        return {name for name in (*folders, *split) if len(name) == DIGITS}

    def remove(self, digest: str) -> None:
        """Remove an artifact, but not its weights, see `unused_weights`. The caller holds `exclusive`."""
        main = self.split(digest)
        remove(main)
        self._verified.pop(main, None)
        self._touched.pop(main, None)
        self._remove_folder(digest)

    def _remove_folder(self, digest: str) -> None:
        folder = self.folder(digest)
        # Renaming first keeps an interrupted removal from leaving half an artifact.
        trash = Path(tempfile.mkdtemp(dir=self._temporary()))
        with suppress(FileNotFoundError):
            os.rename(folder, trash / digest)
        self._verified.pop(folder, None)
        self._touched.pop(folder, None)
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
        """Files and folders that killed writers left behind or that writers are writing now."""
        unfinished = [path for place in (".*", "weights/*/.*") for path in self.split_folder.glob(place)]
        return [*self._temporary().iterdir(), *unfinished]

    def weights(self, digest: str) -> dict[str, int]:
        """The bytes of the weights of an artifact by their digest; empty if it is not split."""
        return dict(weights_of(self.split(digest)))

    def bytes_beside_weights(self, digest: str) -> int:
        """The bytes of a split artifact apart from its weights."""
        return sum(path.stat().st_size for path in stored_files(self.split(digest)))

    def unused_weights(self, removed: Collection[str]) -> list[Path]:
        """The weights that no artifact has, apart from `removed` ones. The caller holds `exclusive`."""
        used: set[str] = set()
        for graph in graphs_in(self.split_folder):
            if graph.stem not in removed:
                used |= weights_of(graph).keys()
        return [path for path in self._weights.all() if path.name not in used]

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Block everyone who is about to use or store an artifact."""
        with held(self.root, fcntl.LOCK_EX):
            yield

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Keep artifacts from being removed meanwhile."""
        with held(self.root, fcntl.LOCK_SH):
            yield

    def _temporary(self) -> Path:
        folder = self.root / TEMPORARY
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _put_split(self, source: Path, digest: str | None) -> str:
        """Store an artifact split; returns its digest, or nothing if it is not one to split."""
        main = splitting.split_elsewhere(source, self.split_folder, digest)
        reached("after copy")
        if main is None:
            return ""
        self._note_verified(main, self._fingerprint_of_split(main))
        return main.stem

    def _take_over(self, graph: Path) -> str:
        """Accept a split artifact that a worker has stored; reads only the weights that this process has not seen."""
        digest = graph.stem
        fingerprint = self._fingerprint_of_split(graph)
        for entry in fingerprint[1:]:
            weight = str(entry[0])
            path = self._weights.path(weight)
            if self._verified.get(path) != (entry,) and digest_file(path) != weight:
                raise ArtifactLost(digest, "a weight of the artifact is damaged", str(path))
        self._note_verified(graph, fingerprint)
        return digest

    def _fingerprint_of_split(self, main: Path) -> Fingerprint:
        """The digest of its own files, one of whose times changes at each use, and the fingerprints of its weights."""
        own = digest_json([digest_file(path) for path in sorted(stored_files(main))])
        weights = sorted(manifest_of(main).weights)
        entries = [entry_of(weight, self._weights.path(weight).stat()) for weight in weights]
        return (own,), *entries

    def _note_verified(self, main: Path, fingerprint: Fingerprint) -> None:
        """Note that a split artifact and its weights are intact."""
        self._verified[main] = fingerprint
        for entry in fingerprint[1:]:
            self._verified[self._weights.path(str(entry[0]))] = (entry,)

    def _new_folder(self) -> Path:
        """Make a folder with the permissions that the umask gives; those of `tempfile` are for one user."""
        folder = self._temporary() / os.urandom(8).hex()
        folder.mkdir()
        return folder

    def _put(self, source: Path, digest: str | None, consume: bool) -> str:
        temporary = self._new_folder()
        try:
            copy_files(source, temporary, consume=consume)
            reached("after copy")
            # That of the copy: the source may have changed while it was copied.
            actual = digest_folder(temporary)
            if digest is not None and digest != actual:
                raise SystemFailure(f"has digest {actual}, not {digest} as expected", where=str(source))
            make_durable(temporary)
            reached("after fsync")
            fingerprint = fingerprint_of(temporary)
            if self._publish(temporary, actual):
                self._verified[self.folder(actual)] = fingerprint
            reached("after rename")
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return actual

    def _publish(self, temporary: Path, digest: str) -> bool:
        """Move a complete folder to its place; False if an intact artifact is there. A damaged one is replaced."""
        folder = self.folder(digest)
        with held(self.root, fcntl.LOCK_SH):
            is_first = not folder.parent.exists()
            folder.parent.mkdir(parents=True, exist_ok=True)
            if not rename_folder(temporary, folder):
                if has_digest(folder, digest):
                    with suppress(PermissionError):  # of another user
                        os.utime(folder)
                    return False
                self._remove_folder(digest)
                rename_folder(temporary, folder)
            # A power cut forgets a folder whose parent was not synced; the row that names the artifact comes next.
            sync(folder.parent)
            if is_first:
                sync(self.root)
        return True

    def _touch(self, place: Path) -> None:
        if time.monotonic() - self._touched.get(place, -TOUCH_SECONDS) < TOUCH_SECONDS:
            return
        with suppress(OSError), held(self.root, fcntl.LOCK_SH):  # a read-only store can still be read
            os.utime(place)
        self._touched[place] = time.monotonic()
