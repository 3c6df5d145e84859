"""Models out of archives (zip, tar and its compressed kinds). Runs in a worker, as all that opens a user's files."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from autoopt.errors import InputError
from autoopt.model.fetch import innermost, is_url

SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MODELS: Final = (".onnx", ".ort")
RATIO, FLOOR = 200, 1 << 30
"""An archive may hold so many times its own size, and this many bytes in any case."""
BLOCK = 1 << 20


def is_archive(path: str) -> bool:
    """Whether the name is one of an archive."""
    name = innermost(path).partition("?")[0] if is_url(path) else path
    return name.lower().endswith(SUFFIXES)


def unpack(payload: dict[str, Any]) -> dict[str, Any]:
    """Unpack the regular files of the archive `source` into the folder `dest`; links and devices are left out.

    Returns:
        `models`: paths of the models in `dest`, relative to it, sorted.

    Raises:
        InputError: no archive, a name that leads out of it, or more bytes than its size allows.
    """
    source, dest = Path(payload["source"]), Path(payload["dest"])
    room = max(FLOOR, RATIO * source.stat().st_size)
    models = []
    try:
        for name, body in _members(source):
            target = _inside(dest, name, source)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                while block := body.read(BLOCK):
                    room -= len(block)
                    if room < 0:
                        raise InputError("unpacks to far more than its own size", where=str(source))
                    file.write(block)
            if target.suffix in MODELS:
                models.append(str(target.relative_to(dest)))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        shutil.rmtree(dest, ignore_errors=True)
        raise InputError(f"cannot be unpacked ({error})", where=str(source)) from error
    return {"models": sorted(models)}


def _members(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and contents of the regular files in an archive."""
    if source.name.lower().endswith(".zip"):
        with zipfile.ZipFile(source) as archive:
            for item in archive.infolist():
                if not item.is_dir():
                    with archive.open(item) as body:
                        yield item.filename, body
        return
    with tarfile.open(source) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name, content


def _inside(dest: Path, name: str, source: Path) -> Path:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or not parts.name or "\0" in name:
        raise InputError("holds a name that leads out of it", where=str(source))
    return dest.joinpath(*parts.parts)
