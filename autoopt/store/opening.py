"""Opening the store that the settings name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from autoopt.settings import settings
from autoopt.store.store import Store

DATABASE_FILE: Final = "autoopt.db"
"""The SQLite file in the folder of a store."""


def store_exists(url: str | None = None, home: Path | None = None) -> bool:
    """True if a database is named or there is a SQLite file in `home`; the defaults are as for `open_store`."""
    if url or settings().db_url:
        return True
    return ((home or settings().home) / DATABASE_FILE).exists()


def open_store(url: str | None = None, home: Path | None = None, *, adopt: bool = False) -> Store:
    """Open the store at `home`; create it if it does not exist.

    Args:
        url: Address of the database; by default `AUTOOPT_DB_URL`, else a SQLite file in `home`.
        home: Folder of the store on this machine; by default `AUTOOPT_HOME`.
        adopt: Accept an empty database although `home` holds artifacts, to restore a backup.

    Raises:
        InputError: The address is wrong, the database has another schema or belongs to something else,
            SQLite would be on a network file system, or the database is empty beside artifacts.
    """
    # SQLAlchemy takes a tenth of a second to import, and most commands never open a store.
    from autoopt.store.sql.database import open_database

    home = (home or settings().home).absolute()
    address = url or settings().db_url or home / DATABASE_FILE
    return Store(open_database(address), home, artifacts_url=settings().artifacts_url, adopt=adopt)
