"""The rows of `artifact` and `model`, with the files of the artifacts."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Connection, select

from autoopt.errors import InputError
from autoopt.model.files import digest_folder
from autoopt.store.artifact_files import ArtifactFiles, ArtifactLost
from autoopt.store.faults import reached
from autoopt.store.records import ArtifactRecord, ModelRecord, Restorer
from autoopt.store.remote import RemoteArtifacts
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import Lookup, fetch_all, from_row, insert_if_absent, insert_into, to_row

_T = tables.artifact.c
_LOOKUP = Lookup(tables.artifact, "digest", "artifact")


class SqlArtifacts:
    """Model files, named by the digest of their bytes: on this machine, and perhaps where other machines fetch them."""

    restorer: Restorer | None = None
    """If set, `path` uses it to make lost artifacts again."""

    def __init__(self, database: Database, files: ArtifactFiles, remote: RemoteArtifacts | None, scratch: Path) -> None:
        """Put rows and files together; `scratch`, for downloads, is created when needed."""
        self._database = database
        self._scratch = scratch
        self.files = files
        self.remote = remote

    def put(self, folder: Path, digest: str | None = None, *, consume: bool = False) -> str:
        """Store the model in `folder` (`model.onnx` and its external data) and return its digest.

        Equal bytes are one artifact.

        Args:
            folder: Contains only the files of the model. Or the graph of a split model in `split_folder`.
            digest: The digest that the files are expected to have.
            consume: Allow moving the files instead of copying them.

        Raises:
            InputError: The folder is empty or contains something other than regular files.
            SystemFailure: The files do not have the expected digest.
        """
        return self._recorded(self.files.put(Path(folder), digest, consume=consume))

    def put_set(self, description: bytes, models: Mapping[str, str]) -> str:
        """Store a model set of stored models, with whose weights it shares its own; return its digest.

        Args:
            description: The content of its `model_set.json`.
            models: The digest of each model by the folder in which the description names it.

        Raises:
            ArtifactLost: As `path`, of a model.
        """
        for digest in models.values():
            self.path(digest)  # a lost one comes back
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
        """Folder in which workers on this machine may store large models split, see `autoopt.model.split`."""
        return self.files.split_folder

    def push(self, digest: str, *, replace: bool = False) -> None:
        """Copy an artifact to where other machines fetch it, if there is such a place."""
        if self.remote is not None and (replace or not self.remote.is_pushed(digest)):
            with self.files.unpacked(digest) as folder:
                self.remote.push(digest, folder, replace=replace)

    def path(self, digest: str) -> Path:
        """The model file of an artifact, to read: in a folder with only its files.

        Of a split artifact, it is the graph or the description, which share weights with others; see `write_files`.
        The bytes are verified once per process and again whenever the files look different.

        Raises:
            ArtifactLost: The files are missing or damaged, and no `restorer` made the same bytes again.
        """
        try:
            return self.files.path(digest)
        except ArtifactLost:
            copy = self.fetch(digest)
            if copy is None and self.restorer is None:
                raise
        if copy is not None:
            self.put_back(digest, copy)
        elif self.restorer is not None:
            self.put_back(digest, self.restorer(digest), replace_remote=True)
        return self.files.path(digest)

    def write_files(self, digest: str, folder: Path) -> Path:
        """Copy the files of an artifact into a folder; returns the model file there.

        Raises:
            ArtifactLost: As `path`.
        """
        self.path(digest)
        return self.files.write(digest, folder)

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
        """The artifact with this digest."""
        return from_row(ArtifactRecord, tables.artifact, _LOOKUP.find(self._database, digest))

    def exists(self, prefix: str) -> bool:
        """True if the digest of any artifact begins with `prefix`."""
        query = select(_T.digest).where(_T.digest.startswith(prefix, autoescape=True)).limit(1)
        return bool(fetch_all(self._database, query))

    def all(self) -> tuple[ArtifactRecord, ...]:
        """All artifacts, oldest first."""
        query = select(tables.artifact).order_by(_T.created, _T.digest)
        return tuple(from_row(ArtifactRecord, tables.artifact, row) for row in fetch_all(self._database, query))


class SqlModels:
    """Source models: the artifacts that runs start from."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, record: ModelRecord) -> None:
        """Add a source model. Adding it again replaces its name and inspection."""
        row = {**to_row(tables.model, record), "created": self._database.now}
        changes = {name: row[name] for name in ("name", "inspection")}

        def work(connection: Connection) -> None:
            statement = insert_into(connection, tables.model).values(row)
            connection.execute(statement.on_conflict_do_update(index_elements=["artifact"], set_=changes))

        self._database.write(work)

    def get(self, artifact: str) -> ModelRecord | None:
        """The model with exactly this digest."""
        rows = fetch_all(self._database, select(tables.model).where(tables.model.c.artifact == artifact))
        return from_row(ModelRecord, tables.model, rows[0]) if rows else None

    def all(self) -> tuple[ModelRecord, ...]:
        """All source models, oldest first."""
        query = select(tables.model).order_by(tables.model.c.created, tables.model.c.artifact)
        return tuple(from_row(ModelRecord, tables.model, row) for row in fetch_all(self._database, query))
