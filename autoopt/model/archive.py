"""Models from archives (zip, tar and compressed tar). Runs in a worker, like everything that opens a user's files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue
from autoopt.model.fetch import innermost, is_url

SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MODELS: Final = (".onnx", ".ort")
RATIO, FLOOR = 200, 1 << 30
"""An archive may unpack to this multiple of its own size, and to `FLOOR` bytes in any case."""
BLOCK = 1 << 20
"""Bytes that are unpacked before the limit is checked again."""


def is_archive(path: str) -> bool:
    """True if a path or URL has the suffix of an archive."""
    name = innermost(path).partition("?")[0] if is_url(path) else path
    return name.lower().endswith(SUFFIXES)


def unpack(payload: JsonObject) -> dict[str, JsonValue]:
    """Unpack the regular files of the archive `source` into the folder `dest`; links and devices are skipped.

    Returns:
        `models`: paths of the models in `dest`, relative to it, sorted.

    Raises:
        InputError: not an archive, a name that leads out of it, or more bytes than its size allows.
    """
    # Imported late, because every run asks `is_archive`.
    import tarfile
    import zipfile

    source, dest = Path(str(payload["source"])), Path(str(payload["dest"]))
    remaining = max(FLOOR, RATIO * source.stat().st_size)
    models = []
    try:
        for name, body in _members(source):
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
                raise InputError("holds a name that leads out of it", where=str(source))
            target = dest.joinpath(*path.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            remaining -= _copy(body, target, remaining, source)
            if target.suffix in MODELS:
                models.append(str(target.relative_to(dest)))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        shutil.rmtree(dest, ignore_errors=True)
        raise InputError(f"cannot be unpacked ({error})", where=str(source)) from error
    return {"models": sorted(models)}


def _copy(body: IO[bytes], target: Path, limit: int, source: Path) -> int:
    """Copy a file of at most `limit` bytes; return its size. The sizes that an archive states may be wrong."""
    size = 0
    with target.open("wb") as file:
        for block in iter(lambda: body.read(BLOCK), b""):
            size += len(block)
            if size > limit:
                raise InputError("unpacks to far more than its own size", where=str(source))
            file.write(block)
    return size


def _members(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield names and contents of the regular files in an archive."""
    if source.name.lower().endswith(".zip"):
        import zipfile

        with zipfile.ZipFile(source) as archive:
            for item in archive.infolist():
                if not item.is_dir():
                    with archive.open(item) as body:
                        yield item.filename, body
        return
    import tarfile

    with tarfile.open(source) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name, content
