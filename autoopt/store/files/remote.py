"""Artifacts on an object store or a shared folder (fsspec), so that machines without a common file system share them.

<url>/<first two digits>/<digest>/<file>...     and `manifest.json` last: what has none is not there
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Final

from autoopt.errors import InputError, SystemFailure
from autoopt.model.files import files_in
from autoopt.model.filesystems import open_filesystem
from autoopt.settings import redacted, without_password

MANIFEST: Final = "manifest.json"
_FILE: Final = re.compile(r"/[0-9a-f]{2}/([0-9a-f]{64})/")


class RemoteArtifacts:
    """The copies at `url`. The folder on this machine is the cache in front of it; digests are verified there."""

    def __init__(self, url: str) -> None:
        """
        Raises:
            InputError: no such file system, or what it needs is not installed.
        """
        self._url = url
        self.safe_url = without_password(url)
        try:
            self._system, root = open_filesystem(url)
        except (ImportError, ValueError) as error:
            reason = redacted(str(error), url)
            raise InputError(f"artifacts cannot be kept there ({reason})", where=self.safe_url) from None
        self._root = PurePosixPath(root)
        self._there: set[str] = set()

    def push(self, digest: str, folder: Path, *, replace: bool = False) -> None:
        """Copy an artifact's files there, unless it is there already; its manifest says when it was last wanted.
        `replace`: copy them in any case.

        Raises:
            SystemFailure: it cannot be written.
        """
        if digest in self._there and not replace:
            return
        try:
            files = files_in(folder)
            if replace or not self._system.exists(self._at(digest, MANIFEST)):
                for name, path in files.items():
                    target = self._at(digest, name)
                    self._system.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
                    self._system.put_file(str(path), target)
            sizes = {name: path.stat().st_size for name, path in files.items()}
            self._system.pipe_file(self._at(digest, MANIFEST), json.dumps(sizes).encode())
        except Exception as error:  # any file system's own family of errors
            raise self._failed("written", error) from None
        self._there.add(digest)

    def pull(self, digest: str, folder: Path) -> bool:
        """Copy an artifact's files into `folder`; False where it is not there.

        Raises:
            SystemFailure: it cannot be read.
        """
        try:
            if not self._system.exists(self._at(digest, MANIFEST)):
                return False
            for name in json.loads(self._system.cat_file(self._at(digest, MANIFEST))):
                parts = PurePosixPath(name)
                if parts.is_absolute() or ".." in parts.parts or not parts.name:
                    return False
                target = folder.joinpath(*parts.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                self._system.get_file(self._at(digest, name), str(target))
        except FileNotFoundError:  # taken away meanwhile
            return False
        except Exception as error:
            raise self._failed("read", error) from None
        return True

    def written(self) -> dict[str, float]:
        """The artifacts that have anything there, and when a file of each was last written, in seconds since 1970;
        infinity where the file system does not say.

        Raises:
            SystemFailure: it cannot be read.
        """
        found: dict[str, float] = {}
        try:
            self._system.invalidate_cache()
            with suppress(FileNotFoundError):
                for path, entry in self._system.find(str(self._root), detail=True).items():
                    match = _FILE.search(str(path))
                    if match is not None:
                        found[match[1]] = max(found.get(match[1], 0.0), _seconds(entry))
        except Exception as error:
            raise self._failed("listed", error) from None
        return found

    def remove(self, digest: str) -> None:
        """Take an artifact away, its manifest first, so that no half of it is ever taken for whole.

        Raises:
            SystemFailure: it cannot be written.
        """
        self._there.discard(digest)
        try:
            with suppress(FileNotFoundError):
                self._system.rm_file(self._at(digest, MANIFEST))
            with suppress(FileNotFoundError):
                self._system.rm(str(self._root / digest[:2] / digest), recursive=True)
        except Exception as error:
            raise self._failed("removed", error) from None

    def _at(self, digest: str, name: str) -> str:
        return str(self._root / digest[:2] / digest / name)

    def _failed(self, what: str, error: Exception) -> SystemFailure:
        text = redacted(f"{type(error).__name__}: {error}", self._url)
        return SystemFailure(f"an artifact cannot be {what} ({text})", where=self.safe_url)


def _seconds(entry: Mapping[str, Any]) -> float:
    """When a file was last written, in seconds since 1970, as its file system says it."""
    for key in ("LastModified", "mtime", "last_modified", "created", "updated"):
        said = entry.get(key)
        if isinstance(said, datetime):
            return (said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp()
        if isinstance(said, int | float):
            return float(said)
        if isinstance(said, str):
            with suppress(ValueError):
                return datetime.fromisoformat(said).timestamp()
    return math.inf
