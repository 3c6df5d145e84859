"""Opening of SQLite files that this user can only read. Imports no database library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal


def is_read_only(file: Path) -> bool:
    """True if this user cannot write a SQLite file that exists, or the logs that SQLite keeps beside it."""
    return file.exists() and not (os.access(file.parent, os.W_OK) and os.access(file, os.W_OK))


def read_only_option(file: Path) -> tuple[Literal["mode", "immutable"], str]:
    """The option of a SQLite address that reads such a file and leaves nothing beside it.

    Without changes in a log, nobody is writing it, and it can be read without lock files. SQLite would create them,
    and the owner of the file could not write it as long as they belong to another user.
    """
    log = file.with_name(file.name + "-wal")
    if log.exists() and log.stat().st_size:
        return "mode", "ro"
    return "immutable", "1"
