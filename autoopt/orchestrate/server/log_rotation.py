"""Rotation of the log files of long-lived processes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

LARGEST_BYTES: Final = 10_000_000
GENERATIONS: Final = 3
"""Number of earlier files of each log."""


def rotate(log: Path, largest: int = LARGEST_BYTES) -> bool:
    """Move the content of a log that has grown too large to `NAME.1`, that of `NAME.1` to `NAME.2`, and so on.

    The log itself stays the same file and is emptied, because processes hold it open; they must append to it. Lines
    that they write between the copy and the emptying are lost.

    Returns:
        True if the log was rotated.
    """
    if not log.exists() or log.stat().st_size <= largest:
        return False
    for number in range(GENERATIONS - 1, 0, -1):
        earlier = _generation(log, number)
        if earlier.exists():
            earlier.replace(_generation(log, number + 1))
    shutil.copyfile(log, _generation(log, 1))
    os.truncate(log, 0)
    return True


def _generation(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")
