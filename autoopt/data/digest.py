"""The identity of a data set: sha256 of its config and of the bytes of every file it reads, without parsing them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from autoopt.data.config import DataConfig
from autoopt.errors import InputError

_IGNORED = ("meta_data",)


def digest(config: DataConfig | str | Mapping[str, Any], root: str | Path = ".") -> str:
    """sha256 hex of a data config and the content it names; where the files lie does not matter.

    Raises:
        InputError: a file that is not there.
    """
    parsed = DataConfig.parse(config)
    named = (*parsed.paths(), *parsed.optional_paths(root))
    contents = {path: digest_path(Path(root, os.path.expanduser(path))) for path in named}
    plain = {k: v for k, v in parsed.to_json().items() if k not in _IGNORED}
    text = json.dumps(_replace(plain, contents), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def digest_path(path: Path) -> str:
    """sha256 of a file, or of the sorted names and sha256 of all files below a folder.

    Raises:
        InputError: there is no such file or folder.
    """
    if path.is_file():
        return _file_digest(str(path), path.stat().st_size, path.stat().st_mtime_ns)
    if not path.is_dir():
        raise InputError("no such data file or folder", where=str(path))
    total = hashlib.sha256()
    for name, file in _files(path):
        total.update(f"{name}\0{_file_digest(str(file), file.stat().st_size, file.stat().st_mtime_ns)}\n".encode())
    return total.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield file.relative_to(folder).as_posix(), file


@lru_cache(maxsize=1 << 17)
def _file_digest(path: str, size: int, modified: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace(value: Any, contents: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return contents.get(value, value)
    if isinstance(value, dict):
        return {k: _replace(v, contents) for k, v in value.items()}
    if isinstance(value, list):
        return [_replace(v, contents) for v in value]
    return value
