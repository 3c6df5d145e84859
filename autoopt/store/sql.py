"""The store in an SQL database and a folder, put together from its parts."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from sqlalchemy import Connection, RowMapping, select, update

from autoopt.errors import InputError
from autoopt.model.files import digest_folder
from autoopt.store import codec, owner, tables
from autoopt.store.artifacts import ArtifactFiles, ArtifactLost
from autoopt.store.base import Store
from autoopt.store.database import Database
from autoopt.store.faults import reached
from autoopt.store.forget import Forgetting
from autoopt.store.lineage import LineageQueries
from autoopt.store.records import ArtifactRecord, EventRecord, ModelRecord
from autoopt.store.remote import RemoteArtifacts
from autoopt.store.runs import Runs
from autoopt.store.schema import prepare
from autoopt.store.trials import Trials


class SqlStore(LineageQueries, Trials, Runs, Forgetting):
    """See `Store`. SQLite and PostgreSQL run the same code."""

    def __init__(self, url: str, home: Path, *, artifacts_url: str | None = None) -> None:
        """`artifacts_url`: where artifacts are kept besides, for other machines."""
        self.home = home
        self.owner = owner.this_process()
        self.db = Database(url)
        self.safe_url = self.db.safe_url
        self.files = ArtifactFiles(home / "artifacts")
        self.remote = RemoteArtifacts(artifacts_url) if artifacts_url else None
        prepare(self.db)

    def close(self) -> None:
        self.db.close()

    def clock(self) -> float:
        return float(self.db.read(lambda connection: connection.execute(select(self.db.now)).scalar_one()))

    def put_artifact(self, folder: Path, digest: str | None = None, *, consume: bool = False) -> str:
        record = self.files.put(Path(folder), digest, consume=consume)
        if self.remote is not None:
            self.remote.push(record.digest, self.files.folder(record.digest))
        row = {
            "digest": record.digest,
            "bytes": record.bytes,
            "files": codec.dumps(record.files),
            "present": 1,
            "created": self.db.now,
        }
        table = tables.artifact
        there = update(table).where(table.c.digest == record.digest, table.c.present == 0).values(present=1)

        def work(connection: Connection) -> None:
            if not self._insert_new(connection, table, row):
                connection.execute(there)
            reached("before commit")

        self.db.write(work)
        reached("after commit")
        return record.digest

    def artifact_path(self, digest: str) -> Path:
        try:
            return self.files.path(digest)
        except ArtifactLost:
            made = self.pulled(digest)
            if made is None and self.restorer is None:
                raise
        anew = made is None
        made = made or self.restorer(digest, self.lineage(digest))  # type: ignore[misc]  # one of them is there
        self.put_back(digest, made, anew=anew)
        return self.files.path(digest)

    def put_back(self, digest: str, folder: Path, *, anew: bool) -> None:
        """Store again what was lost, and remove `folder`. `anew`: in place of the copy for other machines, too."""
        try:
            self.put_artifact(folder, digest)
            if anew and self.remote is not None:
                self.remote.push(digest, self.files.folder(digest), anew=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def pulled(self, digest: str) -> Path | None:
        """The files of an artifact from where other machines left them, in a folder to be removed; None where they are
        not there or are not what was stored."""
        if self.remote is None:
            return None
        folder = self.home / "work" / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        folder.mkdir(parents=True)
        try:
            if self.remote.pull(digest, folder) and digest_folder(folder) == digest:
                return folder
        except InputError:  # no file at all
            pass
        shutil.rmtree(folder, ignore_errors=True)
        return None

    def artifact(self, digest: str) -> ArtifactRecord:
        return _artifact_from(self._find(tables.artifact, "digest", digest, "artifact"))

    def artifacts(self) -> tuple[ArtifactRecord, ...]:
        query = select(tables.artifact).order_by(tables.artifact.c.created, tables.artifact.c.digest)
        return tuple(_artifact_from(row) for row in self._all(query))

    def add_model(self, record: ModelRecord) -> None:
        table = tables.model
        values = {"name": codec.text(record.name), "inspection": codec.dumps(record.inspection)}

        def work(connection: Connection) -> None:
            row = {"artifact": record.artifact, "created": self.db.now, **values}
            if not self._insert_new(connection, table, row):
                connection.execute(update(table).where(table.c.artifact == record.artifact).values(values))

        self.db.write(work)

    def model(self, artifact: str) -> ModelRecord | None:
        query = select(tables.model).where(tables.model.c.artifact == artifact)
        return next((_model_from(row) for row in self._all(query)), None)

    def models(self) -> tuple[ModelRecord, ...]:
        query = select(tables.model).order_by(tables.model.c.created, tables.model.c.artifact)
        return tuple(_model_from(row) for row in self._all(query))

    def add_event(self, record: EventRecord) -> None:
        values = {
            "id": uuid.uuid4().hex,  # so that a repeated transaction adds it once
            "time": self.db.now,
            "kind": record.kind,
            "run": record.run,
            "subject": codec.text(record.subject),
            "content": codec.dumps(record.data),
        }
        self.db.write(lambda connection: self._insert_new(connection, tables.event, values))

    def events(
        self, *, run: str | None = None, kind: str | None = None, subject: str | None = None, under: str | None = None
    ) -> tuple[EventRecord, ...]:
        query = select(tables.event).order_by(tables.event.c.number)
        for column, value in {"run": run, "kind": kind, "subject": subject}.items():
            if value is not None:
                query = query.where(tables.event.c[column] == value)
        if under is not None:
            query = query.where(tables.event.c.subject.startswith(f"{under}/", autoescape=True))
        return tuple(
            EventRecord(row["kind"], row["run"], row["subject"], codec.loads(row["content"]), row["time"])
            for row in self._all(query)
        )


def as_sql(store: Store) -> SqlStore:
    """`store` as what it is; maintenance works on rows and folders."""
    if not isinstance(store, SqlStore):
        raise TypeError(f"{type(store).__name__} has no tables")
    return store


def _artifact_from(row: RowMapping) -> ArtifactRecord:
    return ArtifactRecord(row["digest"], row["bytes"], codec.loads(row["files"]), bool(row["present"]), row["created"])


def _model_from(row: RowMapping) -> ModelRecord:
    return ModelRecord(row["artifact"], row["name"], codec.loads(row["inspection"]), row["created"])
