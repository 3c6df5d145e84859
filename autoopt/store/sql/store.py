"""The store in an SQL database and a folder. SQLite and PostgreSQL run the same code."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

from autoopt.errors import InputError
from autoopt.owner import this_process
from autoopt.store.contracts import Store
from autoopt.store.files.artifacts import ArtifactFiles
from autoopt.store.files.remote import RemoteArtifacts
from autoopt.store.sql.artifacts import SqlArtifacts, SqlModels
from autoopt.store.sql.claims import SqlClaims
from autoopt.store.sql.database import Database
from autoopt.store.sql.history import SqlDeaths, SqlReleases
from autoopt.store.sql.lineage import SqlLineage
from autoopt.store.sql.results import SqlResults
from autoopt.store.sql.runs import SqlRuns
from autoopt.store.sql.schema import prepare
from autoopt.store.sql.sweeps import SqlSweeps
from autoopt.store.sql.trials import SqlTrials


class SqlStore(Store):
    """See `Store`. Maintenance also uses the database and the files directly."""

    artifacts: SqlArtifacts

    def __init__(
        self,
        database: Database,
        home: Path,
        *,
        artifacts_url: str | None = None,
        adopt: bool = False,
        neighbour: Path | None = None,
    ) -> None:
        """Open a store; create its tables.

        Args:
            database: The database, perhaps an empty one.
            home: The folder of the store on this machine.
            artifacts_url: The place where machines share artifacts, if they do.
            adopt: Accept an empty database although the folder holds artifacts, to restore a backup.
            neighbour: Another database in the folder, to which its artifacts belong.
        """
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
        self.lineage = SqlLineage(self, database)
        self._neighbour = neighbour
        prepare(database, (lambda: None) if adopt else self._refuse_lost_database)

    def close(self) -> None:
        self.database.close()

    def _refuse_lost_database(self) -> None:
        """Refuse to begin a new store beside the artifacts of another."""
        count = len(self.files.digests())
        if count and self._neighbour is not None:
            what = f"a new database cannot share the folder of {self._neighbour}"
            raise InputError(what, where=self.safe_url, remedy="set AUTOOPT_HOME to a folder of its own")
        if count:
            raise InputError(
                f"the database is empty, but {self.files.root} holds {count} artifacts: a database was lost",
                where=self.safe_url,
                remedy="bring back a backup with 'autoopt store restore FOLDER', or set AUTOOPT_HOME to a new folder",
            )

    def clock(self) -> float:
        return float(self.database.read(lambda connection: connection.execute(select(self.database.now)).scalar_one()))


def require_sql(store: Store) -> SqlStore:
    """`store` as an SQL store, for maintenance that works on rows and folders."""
    if not isinstance(store, SqlStore):
        raise TypeError(f"{type(store).__name__} has no tables")
    return store
