"""Releases in an object store or another remote file system that fsspec reads.

`URL/NUMBER/` holds the package of each release. `URL/current.json`, one small object, names the one in use.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from autoopt.errors import InputError
from autoopt.model.fetch import RemoteFolder
from autoopt.model.files import files_in
from autoopt.results.release import Release

CURRENT: Final = "current.json"


def add(folder: Path, release: Release, place: str, document: Mapping[str, object]) -> Callable[[], None]:
    """Copy a package to `PLACE/NUMBER`, unless it is there; return the call that makes it the current one.

    `document` is `release.json` of the package. It is copied last, so that it stands for a complete copy.

    Raises:
        InputError: there is no such file system, or the number is that of another model's release.
        SystemFailure: it cannot be written.
    """
    remote = RemoteFolder(place, "cannot publish there")
    target = remote.root / str(release.number)
    with remote.failures("cannot publish there"):
        existing = _read(remote, target / "release.json")
        if existing is None:
            files = files_in(folder)
            for name in sorted(files, key=lambda name: name == "release.json"):
                remote.put(files[name], target / name)
    if existing is not None and any(existing.get(name) != document[name] for name in ("zoo", "model", "artifact")):
        where = f"{remote.safe_url}/{release.number}"
        raise InputError(f"is not release {release.name}", where=where, remedy="name another place with --to")

    def switch() -> None:
        text = json.dumps({**document, "folder": str(release.number)}, indent=2) + "\n"
        with remote.failures("cannot publish there"):
            remote.system.pipe_file(str(remote.root / CURRENT), text.encode())

    return switch


def _read(remote: RemoteFolder, file: PurePosixPath) -> Mapping[str, object] | None:
    """A JSON file there; None without one."""
    if not remote.system.exists(str(file)):
        return None
    document = json.loads(remote.system.cat_file(str(file)))
    if isinstance(document, dict):
        return document
    return {}
