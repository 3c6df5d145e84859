"""The rows of `artifact` and `model`, with the files of the artifacts."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from sqlalchemy import Connection, RowMapping, select, update

from autoopt.errors import InputError
from autoopt.model.files import digest_folder
from autoopt.store.contracts import ArtifactStore, ModelStore
from autoopt.store.faults import reached
from autoopt.store.files.artifacts import ArtifactFiles, ArtifactLost
from autoopt.store.files.remote import RemoteArtifacts
from autoopt.store.records import ArtifactRecord, ModelRecord
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import Lookup, fetch_all, from_row, insert_if_absent, to_row

_T = tables.artifact.c
_LOOKUP = Lookup(tables.artifact, "digest", "artifact")


class SqlArtifacts(ArtifactStore):
    """See `ArtifactStore`. Files are on this machine, and optionally also where other machines can fetch them."""

    def __init__(self, database: Database, files: ArtifactFiles, remote: RemoteArtifacts | None, scratch: Path) -> None:
        """Put rows and files together; `scratch`, for downloads, is created when needed."""
        self._database = database
        self._scratch = scratch
        self.files = files
        self.remote = remote

    def put(self, folder: Path, digest: str | None = None, *, consume: bool = False) -> str:
        return self._recorded(self.files.put(Path(folder), digest, consume=consume))

    def put_set(self, description: bytes, models: Mapping[str, str]) -> str:
        for digest in models.values():
            self.readable(digest)  # a lost one comes back
        return self._recorded(self.files.put_set(description, models))

    def _recorded(self, record: ArtifactRecord) -> str:
        """Push an artifact and write its row; returns its digest."""
        self.push(record.digest)
        # The row comes last: by now, the files that it names are durable, here and where other machines fetch them.
        row = {**to_row(tables.artifact, record), "created": self._database.now}

        def work(connection: Connection) -> None:
            insert_if_absent(connection, tables.artifact, row)
            reached("before commit")

        self._database.write(work)
        reached("after commit")
        return record.digest

    @property
    def split_folder(self) -> Path:
        return self.files.split_folder

    def push(self, digest: str, *, replace: bool = False) -> None:
        """Copy an artifact to where other machines fetch it, if there is such a place."""
        if self.remote is not None and (replace or not self.remote.is_pushed(digest)):
            with self.files.unpacked(digest) as folder:
                self.remote.push(digest, folder, replace=replace)

    def path(self, digest: str) -> Path:
        return self._found(digest, self.files.path)

    def readable(self, digest: str) -> Path:
        return self._found(digest, self.files.readable)

    def write_files(self, digest: str, folder: Path) -> Path:
        self.readable(digest)
        return self.files.write(digest, folder)

    def _found(self, digest: str, find: Callable[[str], Path]) -> Path:
        """The path that `find` gives, after a lost artifact was fetched or made again."""
        try:
            return find(digest)
        except ArtifactLost:
            copy = self.fetch(digest)
            if copy is None and self.restorer is None:
                raise
        if copy is not None:
            self.put_back(digest, copy)
        elif self.restorer is not None:
            self.put_back(digest, self.restorer(digest), replace_remote=True)
        return find(digest)

    def put_back(self, digest: str, folder: Path, *, replace_remote: bool = False) -> None:
        """Store a lost artifact again and remove `folder`; `replace_remote` overwrites the copy for other machines."""
        try:
            self.put(folder, digest)
            if replace_remote:
                self.push(digest, replace=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def fetch(self, digest: str) -> Path | None:
        """Download the copy that machines share.

        Returns:
            A folder that the caller removes; None if there is no intact copy.
        """
        if self.remote is None:
            return None
        folder = self._scratch / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        folder.mkdir(parents=True)
        try:
            if self.remote.pull(digest, folder) and digest_folder(folder) == digest:
                return folder
        except InputError:  # the copy has no file at all
            pass
        shutil.rmtree(folder, ignore_errors=True)
        return None

    def get(self, digest: str) -> ArtifactRecord:
        return _artifact(_LOOKUP.find(self._database, digest))

    def exists(self, prefix: str) -> bool:
        query = select(_T.digest).where(_T.digest.startswith(prefix, autoescape=True)).limit(1)
        return bool(fetch_all(self._database, query))

    def all(self) -> tuple[ArtifactRecord, ...]:
        query = select(tables.artifact).order_by(_T.created, _T.digest)
        return tuple(map(_artifact, fetch_all(self._database, query)))


class SqlModels(ModelStore):
    """See `ModelStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, record: ModelRecord) -> None:
        table = tables.model
        row = {**to_row(table, record), "created": self._database.now}
        again = update(table).where(table.c.artifact == record.artifact)
        again = again.values(name=row["name"], inspection=row["inspection"])

        def work(connection: Connection) -> None:
            if not insert_if_absent(connection, table, row):
                connection.execute(again)

        self._database.write(work)

    def get(self, artifact: str) -> ModelRecord | None:
        rows = fetch_all(self._database, select(tables.model).where(tables.model.c.artifact == artifact))
        return from_row(ModelRecord, tables.model, rows[0]) if rows else None

    def all(self) -> tuple[ModelRecord, ...]:
        query = select(tables.model).order_by(tables.model.c.created, tables.model.c.artifact)
        return tuple(from_row(ModelRecord, tables.model, row) for row in fetch_all(self._database, query))


def _artifact(row: RowMapping) -> ArtifactRecord:
    return from_row(ArtifactRecord, tables.artifact, row)
