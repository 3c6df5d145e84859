"""The result of a finished search in the store's SQLite file, read without SQLAlchemy, which takes long to import."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from autoopt.store.opening import DATABASE_FILE
from autoopt.store.sqlite_access import is_read_only, read_only_option

_QUERY: Final = (
    "SELECT status, result FROM run WHERE identity = ? AND status IN ('finished', 'running') ORDER BY number DESC"
)


def finished_search(home: Path, identity: str) -> str | None:
    """The result of the newest finished run with this identity as JSON text.

    None if the file cannot be read or has no such run, or while a run has not ended that searches for the same.
    """
    file = home / DATABASE_FILE
    option, value = read_only_option(file) if is_read_only(file) else ("mode", "rw")
    try:
        with closing(sqlite3.connect(f"file:{quote(bytes(file))}?{option}={value}", uri=True)) as connection:
            rows = connection.execute(_QUERY, (identity,)).fetchall()
    except sqlite3.Error:
        return None
    if not rows or any(status == "running" for status, _ in rows):
        return None
    result: str | None = rows[0][1]
    return result
