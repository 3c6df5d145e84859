"""Find the external data of an ONNX model by a search for its names, as only workers with onnx may parse a model."""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path
from typing import Final

_LOCATION: Final = re.compile(rb"\x0a\x08location\x12([\x01-\x7f]|[\x80-\xff][\x01-\x7f])", re.DOTALL)
"""Entry of a tensor (StringStringEntryProto) that names a file, up to the length of the name, which is a varint."""


def external_names(model: Path) -> frozenset[str]:
    """The files of external data that a model names, without those that lead out of its folder.

    Raises:
        OSError: The model cannot be read.
    """
    with model.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # cannot be mapped
            return frozenset()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            names = set(map(os.fsdecode, _locations(data)))
    return frozenset(name for name in names if name and not name.startswith("/") and ".." not in Path(name).parts)


def _locations(data: mmap.mmap) -> list[bytes]:
    names: list[bytes] = []
    for match in _LOCATION.finditer(data):
        low, high = match[1][0], match[1][-1]
        size = low if len(match[1]) == 1 else (low & 127) | high << 7
        names.append(data[match.end() : match.end() + size])
    return names
