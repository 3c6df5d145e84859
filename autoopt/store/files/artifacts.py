"""Artifacts as files: content-addressed, and either complete or absent.

    <root>/<first two digits>/<digest>/model.onnx      with external data files beside it
    <root>/split/<digest>.onnx                         a model of many weights, see `autoopt.model.split_model`
    <root>/split/weights/…                             the weights of all split models, each once
    <root>/.tmp/…                                      folders that are being written; never read
    <root>/.lock                                       held briefly: shared by users and writers, alone by deletion

The modification time of a folder or of a split model's graph is the time of its last use. A split model may have a
folder too: a copy for those who need its files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from autoopt.errors import InputError, SystemFailure
from autoopt.model import split_model
from autoopt.model.file_copies import copy_file
from autoopt.model.files import digest_file, digest_folder, files_in, model_in
from autoopt.model.weight_files import NotSplit, WeightFiles, held
from autoopt.store.faults import reached
from autoopt.store.files.filesystem import sync
from autoopt.store.records import ArtifactRecord

Fingerprint: TypeAlias = tuple[tuple[str | int, ...], ...]
"""Name, size, modification time and inode of each file, which show a change without reading it."""
TEMPORARY: Final = ".tmp"
DIGITS: Final = 64
"""Length of a digest."""
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
        self.split_folder = root / split_model.FOLDER
        self._weights = WeightFiles(self.split_folder)
        self._verified: dict[Path, Fingerprint] = {}
        self._touched: dict[Path, float] = {}

    def folder(self, digest: str) -> Path:
        """The folder of an artifact, which may not exist."""
        return self.root / digest[:2] / digest

    def graph(self, digest: str) -> Path:
        """The graph of a split artifact, which may not exist."""
        return split_model.graph_path(self.split_folder, digest)

    def places(self, digest: str) -> list[Path]:
        """The folder and the graph of an artifact, as far as they exist."""
        return [path for path in (self.graph(digest), self.folder(digest)) if path.exists()]

    def put(self, source: Path, digest: str | None = None, *, consume: bool = False) -> ArtifactRecord:
        """Store the files of `source`; see `ArtifactStore.put`. An intact artifact that exists already stays."""
        try:
            if split_model.is_split(source):
                actual = self._take_over(source)
            else:
                actual = self._put_split(source, digest) or self._put(source, digest, consume)
        except OSError as error:
            raise SystemFailure(f"the artifact cannot be stored: {error.strerror}", where=str(self.root)) from None
        return self.record(actual)

    def record(self, digest: str) -> ArtifactRecord:
        """Describe the files of an artifact that exists."""
        graph = self.graph(digest)
        if graph.exists():
            sizes = split_model.sizes_of(graph)
            return ArtifactRecord(digest, sum(sizes.values()), sizes)
        sizes = {name: path.stat().st_size for name, path in files_in(self.folder(digest)).items()}
        return ArtifactRecord(digest, sum(sizes.values()), sizes)

    def path(self, digest: str) -> Path:
        """The verified model file, in a folder with only the files of the artifact; marks it as used.

        Raises:
            ArtifactLost: The files are missing or do not have the digest.
        """
        if self.graph(digest).exists():
            try:
                return self._verified_in_folder(digest)
            except ArtifactLost:  # it is only a copy, or not there yet
                self._unpack(digest)
        return self._verified_in_folder(digest)

    def _verified_in_folder(self, digest: str) -> Path:
        folder = self.folder(digest)
        self._touch(folder)
        try:
            fingerprint = fingerprint_of(folder)
            if not fingerprint:
                raise ArtifactLost(digest, "the artifact is missing", str(folder))
            if self._verified.get(folder) != fingerprint:
                if digest_folder(folder) != digest:
                    raise ArtifactLost(digest, "the artifact is damaged", str(folder))
                self._verified[folder] = fingerprint
            return model_in(folder)
        except FileNotFoundError:
            raise ArtifactLost(digest, "the artifact is missing", str(folder)) from None

    def readable(self, digest: str) -> Path:
        """Like `path`, but of a split artifact the graph.

        Raises:
            ArtifactLost: The files are missing or do not have the digest.
        """
        graph = self.graph(digest)
        if not graph.exists():
            return self.path(digest)
        self._touch(graph)
        try:
            fingerprint = self._fingerprint_of_split(graph)
            if self._verified.get(graph) != fingerprint:
                if split_model.digest_files(graph) != digest:
                    raise ArtifactLost(digest, "the artifact is damaged", str(graph))
                self._note_verified(graph, fingerprint)
        except FileNotFoundError:
            raise ArtifactLost(digest, "the artifact or a part of it is missing", str(graph)) from None
        except NotSplit:
            raise ArtifactLost(digest, "the artifact is damaged", str(graph)) from None
        return graph

    @contextmanager
    def unpacked(self, digest: str) -> Iterator[Path]:
        """A folder with the files of an artifact within the context.

        Raises:
            ArtifactLost: Files are missing or damaged.
        """
        if not self.graph(digest).exists():
            yield self.folder(digest)
            return
        graph = self.readable(digest)
        with tempfile.TemporaryDirectory(dir=self._temporary()) as folder:
            split_model.write_files(graph, Path(folder))
            yield Path(folder)

    def write(self, digest: str, folder: Path) -> Path:
        """Copy the files of an artifact into a folder; returns the model file there."""
        graph = self.graph(digest)
        if graph.exists():
            split_model.write_files(graph, folder)
        else:
            _copy(self.folder(digest), folder)
        return model_in(folder)

    def exists(self, digest: str) -> bool:
        """True if there are files of an artifact, intact or not."""
        return bool(self.places(digest))

    def is_intact(self, digest: str) -> bool:
        """True if the files exist and have the digest; reads all of them."""
        graph = self.graph(digest)
        try:
            if graph.exists():
                return split_model.digest_files(graph) == digest
            return digest_folder(self.folder(digest)) == digest
        except Exception:  # unreadable, empty, not regular: in any case it is not the artifact
            return False

    def heal(self, digest: str) -> bool:
        """True if an artifact is intact, after a damaged split one was stored again from its own copy."""
        folder = self.folder(digest)
        if self.graph(digest).exists() and not self.is_intact(digest) and _has_digest(folder, digest):
            self.put(folder, digest)
        return self.is_intact(digest)

    def digests(self) -> set[str]:
        """The digests that have a folder."""
        folders = (folder.name for folder in self.root.glob("[0-9a-f][0-9a-f]/*"))
        graphs = (graph.stem for graph in self._graphs())
        return {name for name in (*folders, *graphs) if len(name) == DIGITS}

    def _graphs(self) -> Iterator[Path]:
        """The graphs of all split artifacts."""
        return self.split_folder.glob("[0-9a-f]*.onnx")

    def remove(self, digest: str) -> None:
        """Remove an artifact, but not its weights, see `unused_weights`. The caller holds `exclusive`."""
        graph = self.graph(digest)
        split_model.remove_graph(graph)
        self._verified.pop(graph, None)
        self._touched.pop(graph, None)
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
        unfinished = [*self.split_folder.glob(".*"), *self.split_folder.glob("weights/*/.*")]
        return [*self._temporary().iterdir(), *unfinished]

    def copies(self) -> list[Path]:
        """The folders of split artifacts, which can be made again at any time."""
        folders = [self.folder(graph.stem) for graph in self._graphs()]
        return [folder for folder in folders if folder.exists()]

    def weights(self, digest: str) -> dict[str, int]:
        """The bytes of the weights of an artifact by their digest; empty if it is not split."""
        sizes: dict[str, int] = {}
        with suppress(FileNotFoundError):
            for weight in split_model.weights_of(self.graph(digest)):
                sizes[weight] = self._weights.path(weight).stat().st_size
        return sizes

    def graph_bytes(self, digest: str) -> int:
        """The bytes of a split artifact apart from its weights."""
        return split_model.graph_bytes(self.graph(digest))

    def unused_weights(self, removed: Collection[str]) -> list[Path]:
        """The weights that no artifact has, apart from `removed` ones. The caller holds `exclusive`."""
        used: set[str] = set()
        for graph in self._graphs():
            if graph.stem not in removed:
                used |= split_model.weights_of(graph)
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
        """Store a model split; returns its digest, or nothing if it is not one to split."""
        if not split_model.may_be_split(source):
            return ""
        expected = digest or digest_folder(source)
        if self.folder(expected).exists() and not self.graph(expected).exists():
            return ""  # an artifact of an earlier version stays as it is
        for replace in (False, True):
            draft = split_model.split_folder(source, self.split_folder, replace=replace)
            reached("after copy")
            if draft is None:
                return ""
            # That of what is stored: the source may have changed meanwhile, or a weight may be damaged.
            actual = split_model.digest_files(draft.graph)
            if actual == expected:
                graph = draft.publish(actual)
                reached("after rename")
                self._note_verified(graph, self._fingerprint_of_split(graph))
                return actual
            draft.discard()
        raise SystemFailure(f"has digest {digest_folder(source)}, not {expected} as expected", where=str(source))

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

    def _fingerprint_of_split(self, graph: Path) -> Fingerprint:
        """The digest of a graph, whose time changes at each use, and the fingerprints of its weights."""
        weights = sorted(split_model.weights_of(graph))
        entries = [_entry(weight, self._weights.path(weight).stat()) for weight in weights]
        return (digest_file(graph),), *entries

    def _note_verified(self, graph: Path, fingerprint: Fingerprint) -> None:
        """Note that a split artifact and its weights are intact."""
        self._verified[graph] = fingerprint
        for entry in fingerprint[1:]:
            self._verified[self._weights.path(str(entry[0]))] = (entry,)

    def _unpack(self, digest: str) -> None:
        """Make the folder of a split artifact."""
        graph = self.readable(digest)
        temporary = self._new_folder()
        try:
            split_model.write_files(graph, temporary)
            _make_durable(temporary)
            self._publish(temporary, digest)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _new_folder(self) -> Path:
        """Make a folder with the permissions that the umask gives; those of `tempfile` are for one user."""
        folder = self._temporary() / os.urandom(8).hex()
        folder.mkdir()
        return folder

    def _put(self, source: Path, digest: str | None, consume: bool) -> str:
        temporary = self._new_folder()
        try:
            _copy(source, temporary, consume=consume)
            reached("after copy")
            # That of the copy: the source may have changed while it was copied.
            actual = digest_folder(temporary)
            if digest is not None and digest != actual:
                raise SystemFailure(f"has digest {actual}, not {digest} as expected", where=str(source))
            _make_durable(temporary)
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
            if not _rename(temporary, folder):
                if _has_digest(folder, digest):
                    with suppress(PermissionError):  # of another user
                        os.utime(folder)
                    return False
                self._remove_folder(digest)
                _rename(temporary, folder)
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


def fingerprint_of(folder: Path) -> Fingerprint:
    """The fingerprint of the files in a folder; empty if there are none."""
    if not folder.is_dir():
        return ()
    return tuple(_entry(name, path.stat()) for name, path in files_in(folder).items())


def _entry(name: str, stat: os.stat_result) -> tuple[str, int, int, int]:
    return name, stat.st_size, stat.st_mtime_ns, stat.st_ino


def _has_digest(folder: Path, digest: str) -> bool:
    try:
        return digest_folder(folder) == digest
    except (InputError, OSError):
        return False


def _copy(source: Path, folder: Path, *, consume: bool = False) -> None:
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


def _make_durable(temporary: Path) -> None:
    for path in files_in(temporary).values():
        # Sessions and users open these files where they are: nobody may change what the digest names.
        path.chmod(0o444)
        sync(path)
    for path in temporary.rglob("*"):
        if path.is_dir():
            sync(path)
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
