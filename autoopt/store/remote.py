"""Artifacts on an object store or a shared folder (fsspec), for machines without a common file system.

<url>/<first two digits>/<digest>/<file>...     and `manifest.json` last: an artifact without one does not exist
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

from autoopt.model.fetch import RemoteFolder
from autoopt.model.files import files_in

MANIFEST: Final = "manifest.json"
_FILE: Final = re.compile(r"/[0-9a-f]{2}/([0-9a-f]{64})/")


class RemoteArtifacts:
    """The copies at a URL. The folder on this machine is the cache in front of it; digests are verified there.

    Raises:
        InputError: There is no such file system, or its library is not installed.
    """

    def __init__(self, url: str) -> None:
        self._folder = RemoteFolder(url, "artifacts cannot be kept there")
        self._system, self._root = self._folder.system, self._folder.root
        self.safe_url = self._folder.safe_url
        self._pushed: set[str] = set()

    def push(self, digest: str, folder: Path, *, replace: bool = False) -> None:
        """Copy the files of an artifact, unless they exist and `replace` is off.

        The manifest records when a machine last wanted the artifact.

        Raises:
            SystemFailure: The copy cannot be written.
        """
        if self.is_pushed(digest) and not replace:
            return

        def copy() -> None:
            files = files_in(folder)
            if replace or not self._system.exists(self._at(digest, MANIFEST)):
                for name, path in files.items():
                    self._folder.put(path, PurePosixPath(self._at(digest, name)))
            sizes = {name: path.stat().st_size for name, path in files.items()}
            self._system.pipe_file(self._at(digest, MANIFEST), json.dumps(sizes).encode())

        self._folder.patiently("an artifact cannot be written", copy)
        self._pushed.add(digest)

    def is_pushed(self, digest: str) -> bool:
        """True if this process knows that the artifact is there."""
        return digest in self._pushed

    def pull(self, digest: str, folder: Path) -> bool:
        """Copy the files of an artifact into `folder`; False if there is no such artifact.

        Raises:
            SystemFailure: The copy cannot be read.
        """

        def copy() -> bool:
            with suppress(FileNotFoundError):  # another machine may remove it meanwhile
                return self._system.exists(self._at(digest, MANIFEST)) and self._copy_to(digest, folder)
            return False

        return self._folder.patiently("an artifact cannot be read", copy)

    def _copy_to(self, digest: str, folder: Path) -> bool:
        for name in json.loads(self._system.cat_file(self._at(digest, MANIFEST))):
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts or not parts.name:
                return False
            target = folder.joinpath(*parts.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._system.get_file(self._at(digest, name), str(target))
        return True

    def written(self) -> dict[str, float]:
        """The artifacts with any file, and the time of the last write of one, in seconds since 1970.

        The time is infinite if the file system has no times.

        Raises:
            SystemFailure: The copies cannot be listed.
        """
        times: dict[str, float] = {}
        with self._folder.failures("an artifact cannot be listed"), suppress(FileNotFoundError):
            self._system.invalidate_cache()
            for path, entry in self._system.find(str(self._root), detail=True).items():
                match = _FILE.search(str(path))
                if match is not None:
                    times[match[1]] = max(times.get(match[1], 0.0), _write_time(entry))
        return times

    def remove(self, digest: str) -> None:
        """Remove an artifact, its manifest first, so that no half of it ever looks complete.

        Raises:
            SystemFailure: The copy cannot be removed.
        """
        self._pushed.discard(digest)
        with self._folder.failures("an artifact cannot be removed"):
            with suppress(FileNotFoundError):
                self._system.rm_file(self._at(digest, MANIFEST))
            with suppress(FileNotFoundError):
                self._system.rm(str(self._root / digest[:2] / digest), recursive=True)

    def _at(self, digest: str, name: str) -> str:
        return str(self._root / digest[:2] / digest / name)


def _write_time(entry: Mapping[str, object]) -> float:
    """The time of the last write of a file, in seconds since 1970, as its file system gives it."""
    for key in ("LastModified", "mtime", "last_modified", "created", "updated"):
        value = entry.get(key)
        if isinstance(value, str):
            with suppress(ValueError):
                value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, int | float):
            return float(value)
    return math.inf
