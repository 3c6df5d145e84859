"""Opening the store that the settings name."""

from __future__ import annotations

from pathlib import Path

from autoopt.settings import settings
from autoopt.store.contracts import Store


def open_store(url: str | None = None, home: Path | None = None) -> Store:
    """Open the store at `home`; create it if it does not exist, upgrade it if it is older.

    Args:
        url: Address of the database; by default `AUTOOPT_DB_URL`, else a SQLite file in `home`.
        home: Folder of the store on this machine; by default `AUTOOPT_HOME`.

    Raises:
        InputError: The address is wrong, the database is newer than this autoopt or belongs to something else, or
            SQLite would be on a network file system.
    """
    # SQLAlchemy takes a tenth of a second to import, and most commands never open a store.
    from autoopt.store.sql.database import open_database
    from autoopt.store.sql.store import SqlStore

    home = (home or settings().home).absolute()
    address = url or settings().db_url or home / "autoopt.db"
    return SqlStore(open_database(address), home, artifacts_url=settings().artifacts_url)
