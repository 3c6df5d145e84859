"""Find the external data of an ONNX model by a search for its names, as only workers may parse a model."""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path, PurePosixPath
from typing import Final

_LOCATION: Final = re.compile(rb"\x0a\x08location\x12([\x01-\x7f]|[\x80-\xff][\x01-\x7f])", re.DOTALL)
"""Entry of a tensor (StringStringEntryProto) that names a file, up to the length of the name, which is a varint."""


def external_files(model: Path) -> list[Path]:
    """The files of external data that a model names and that exist, sorted.

    Names that lead out of the model's folder are left out: whoever reads the model refuses them.

    Raises:
        OSError: The model cannot be read.
    """
    with model.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # cannot be mapped
            return []
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            names = set(map(os.fsdecode, _locations(data)))
    files: list[Path] = []
    for name in sorted(names):
        inside = PurePosixPath(name)
        if not inside.is_absolute() and ".." not in inside.parts and (model.parent / name).is_file():
            files.append(model.parent / name)
    return files


def _locations(data: mmap.mmap) -> list[bytes]:
    names: list[bytes] = []
    for match in _LOCATION.finditer(data):
        low, high = match[1][0], match[1][-1]
        size = low if len(match[1]) == 1 else (low & 127) | high << 7
        names.append(data[match.end() : match.end() + size])
    return names
