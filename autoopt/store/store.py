"""The store: what it keeps, and what it promises.

- A result is stored completely or not at all, and only after the artifacts it names are durable on disk. Killing a
  process at any instant loses at most the work that this process was doing.
- A result is written once. The first good result for a key stays and later ones are refused. An outcome that is
  `retryable` may be replaced by a later result.
- One owner at a time holds a claim, until the owner finishes or releases it or its lease ends on the database's clock.
  The claim of a process that has ended on this machine is free at once. An owner that lost a claim can no longer
  finish the work.
- All methods are thread-safe and each is one transaction. They wait for other writers and reconnect to a database that
  restarts. A failure that persists raises `SystemFailure` with one line that shows no password.

`get` takes an id or the unique beginning of one, and raises `InputError` if nothing or several things match.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from autoopt.errors import InputError
from autoopt.owner import this_process
from autoopt.settings import settings

if TYPE_CHECKING:
    from autoopt.store.sql.database import Database


class Store:
    """Results, artifacts and work of any number of threads, processes and machines.

    SQLite and PostgreSQL run the same code. Maintenance also uses the database and the files directly.
    """

    def __init__(
        self,
        database: Database,
        home: Path,
        *,
        artifacts_url: str | None = None,
        adopt: bool = False,
    ) -> None:
        """Open a store; create its tables.

        Args:
            database: The database, perhaps an empty one.
            home: The folder of the store on this machine.
            artifacts_url: The place where machines share artifacts, if they do.
            adopt: Accept an empty database although the folder holds artifacts, to restore a backup.
        """
        # SQLAlchemy takes a tenth of a second to import, and most commands never open a store.
        from autoopt.store.artifact_files import ArtifactFiles
        from autoopt.store.remote import RemoteArtifacts
        from autoopt.store.sql.artifacts import SqlArtifacts, SqlModels
        from autoopt.store.sql.claims import SqlClaims
        from autoopt.store.sql.history import SqlDeaths, SqlReleases, SqlSweeps
        from autoopt.store.sql.lineage import SqlLineage
        from autoopt.store.sql.results import SqlResults
        from autoopt.store.sql.runs import SqlRuns
        from autoopt.store.sql.tables import prepare
        from autoopt.store.sql.trials import SqlTrials

        self.home = home
        self.owner = this_process()
        self.database = database
        self.safe_url = database.safe_url
        self.files = ArtifactFiles(home / "artifacts")
        self.remote = RemoteArtifacts(artifacts_url) if artifacts_url else None
        self.artifacts = SqlArtifacts(database, self.files, self.remote, home / "work")
        self.models = SqlModels(database)
        self.results = SqlResults(database, self.owner)
        self.claims = SqlClaims(database, self.owner)
        self.runs = SqlRuns(database, self.owner)
        self.sweeps = SqlSweeps(database, self.owner)
        self.trials = SqlTrials(database, self.owner)
        self.deaths = SqlDeaths(database)
        self.releases = SqlReleases(database)
        self.lineage = SqlLineage(self.artifacts, self.models, database)
        prepare(database, (lambda: None) if adopt else self._refuse_lost_database)

    def _refuse_lost_database(self) -> None:
        """Refuse to begin a new store beside the artifacts of another."""
        count = len(self.files.digests())
        if count:
            raise InputError(
                f"the database is empty, but {self.files.root} holds {count} artifacts of another one",
                where=self.safe_url,
                remedy="bring back a backup with 'autoopt store restore FOLDER', or set AUTOOPT_HOME to a new folder",
            )

    def clock(self) -> float:
        """The time of the database, in seconds since 1970."""
        return self.database.clock()

    def close(self) -> None:
        """Close all connections. The store can be used again afterwards."""
        self.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
