"""Backup and restore. A backup is a store of its own with a SQLite file, whatever database it was made from."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, func, insert, select, text

from autoopt.errors import InputError, SystemFailure, refuse_url
from autoopt.store.artifact_files import ArtifactFiles
from autoopt.store.filesystem import sync
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database, open_database
from autoopt.store.sql.rows import BATCH
from autoopt.store.sql.tables import check_tables, missing_tables, prepare
from autoopt.store.store import DATABASE_FILE, Store, open_store
from autoopt.working_folder import STORE_WORK, check_own, working_folder

_NUMBERED = (tables.sweep, tables.run, tables.release_step, tables.worker_death)
"""Tables whose rows the database numbers."""
_FILE_ENDS: Final = ("", "-wal", "-shm", "-journal")
"""Ends of the names of the files that make up a SQLite database."""
UNFINISHED = f".{DATABASE_FILE}.new"
"""The database of a backup until all artifacts are there."""


@dataclass(frozen=True)
class CopyResult:
    """The content of a backup, or of a store that was restored from one."""

    folder: str
    runs: int
    artifacts: int
    lost: tuple[str, ...]
    """Artifacts that could not be copied because they are missing or damaged."""


def backup(store: Store, folder: Path) -> CopyResult:
    """Copy a store into a folder, while others may use it. A backup that is there already is brought up to date.

    Raises:
        InputError: The folder is a URL or that of the store, or holds something that is not a backup.
        SystemFailure: The disk is full or broken.
    """
    _check_folder(folder, store.home)
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / UNFINISHED
    new.unlink(missing_ok=True)
    with store.files.shared():  # nothing that the copied rows name may be removed meanwhile
        _copy_database(store.database, new)
        digests = sorted(record.digest for record in store.artifacts.all())
        lost = _copy_artifacts(digests, store.files, ArtifactFiles(folder / "artifacts"), store.artifacts.fetch)
    sync(new)
    os.replace(new, folder / DATABASE_FILE)
    sync(folder)
    return CopyResult(str(folder), _count_runs(store.database), len(digests) - len(lost), lost)


def restore_store(folder: Path, url: str | None, home: Path) -> CopyResult:
    """Restore a backup. A damaged database is renamed, never removed.

    Raises:
        InputError: The folder is not a backup, or the store is not empty.
    """
    set_aside_damaged(url or home / DATABASE_FILE)
    with open_store(url, home, adopt=True) as store:
        return restore(folder, store)


def set_aside_damaged(address: str | Path) -> Path | None:
    """Rename the files of a damaged SQLite database; returns the new path, or None if it is not damaged.

    `address` is as for `open_database`.

    Raises:
        InputError: A database on a server lacks a table.
    """
    database = open_database(address)
    if not database.sqlite:
        check_tables(database)
        return None
    file = Path(str(database.url.database))
    if not file.exists() or (is_sound(file) and not database.read(missing_tables)):
        return None
    database.close()
    number = 1
    while (aside := file.with_name(f"{file.name}.damaged-{number}")).exists():
        number += 1
    for end in _FILE_ENDS:
        with suppress(FileNotFoundError):
            os.rename(f"{file}{end}", f"{aside}{end}")
    return aside


def is_sound(file: Path) -> bool:
    """True if SQLite can read all of a database file."""
    try:
        with closing(sqlite3.connect(file)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error:
        return False


def restore(folder: Path, store: Store) -> CopyResult:
    """Copy a backup into a store without runs, whose folder may hold artifacts. Those are kept.

    Raises:
        InputError: The folder is not a backup, or the store is not empty.
        SystemFailure: The disk is full or broken.
    """
    if _count_runs(store.database):
        message = "holds runs; a backup is restored into an empty store"
        raise InputError(message, where=store.safe_url, remedy="move it away, or set AUTOOPT_HOME to another folder")
    store.home.mkdir(parents=True, exist_ok=True)
    with working_folder(store.home / STORE_WORK) as scratch:
        source = open_database(_copy_of(folder, scratch))
        try:
            prepare(source)
            if source.read(missing_tables):
                raise InputError("is damaged: it lacks tables", where=str(folder), remedy="use another backup")
            digests = source.read(_artifacts)
            lost = _copy_artifacts(digests, ArtifactFiles(folder / "artifacts"), store.files)
            for digest in digests:
                if digest not in lost:
                    store.artifacts.push(digest)
            with source.transaction(writing=False) as reading:
                store.database.write(lambda writing: _copy_rows(reading, writing))
        finally:
            source.close()
    store.database.make_durable()
    return CopyResult(str(folder), _count_runs(store.database), len(digests) - len(lost), lost)


def _copy_of(folder: Path, scratch: Path) -> Path:
    """Copy the database of a backup, because SQLite writes beside a file that it reads."""
    file = folder / DATABASE_FILE
    if not file.is_file() or not file.stat().st_size:
        if (folder / UNFINISHED).exists():
            remedy = "repeat 'autoopt store backup', which continues it"
            raise InputError("is a backup that was not completed", where=str(folder), remedy=remedy)
        raise InputError(f"is not a backup: it has no {DATABASE_FILE}", where=str(folder))
    copy = scratch / DATABASE_FILE
    source = open_database(file)
    try:
        source.copy_to(copy)
    except SystemFailure:
        copy.unlink(missing_ok=True)
    finally:
        source.close()
    if not copy.exists() or not is_sound(copy):
        raise InputError("is damaged", where=str(file), remedy="use another backup")
    return copy


def _check_folder(folder: Path, home: Path) -> None:
    refuse_url(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file, not a folder", where=str(folder))
    if folder.exists() and folder.resolve() == home.resolve():
        raise InputError("is the store itself", where=str(folder), remedy="name another folder")
    is_backup = (folder / DATABASE_FILE).exists() or (folder / UNFINISHED).exists()
    if folder.exists() and any(folder.iterdir()) and not is_backup:
        raise InputError("is neither empty nor a backup", where=str(folder), remedy="name another folder")
    check_own(folder / DATABASE_FILE, "SQLite format")


def _copy_database(database: Database, file: Path) -> None:
    """Copy one state of a database into a new SQLite file."""
    if database.sqlite:
        database.copy_to(file)
        return
    target = open_database(file)
    try:
        prepare(target)
        with database.snapshot() as reading:
            target.write(lambda writing: _copy_rows(reading, writing))
    finally:
        target.close()


def _copy_rows(source: Connection, target: Connection) -> None:
    for table in tables.metadata.sorted_tables:
        rows = source.execution_options(stream_results=True).execute(select(table)).mappings()
        for batch in rows.partitions(BATCH):
            target.execute(insert(table), list(map(dict, batch)))
    if target.dialect.name == "postgresql":
        for table in _NUMBERED:
            highest = f"(SELECT max(number) FROM {table.name})"
            target.execute(text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'number'), {highest})"))


def _copy_artifacts(
    digests: Iterable[str],
    source: ArtifactFiles,
    target: ArtifactFiles,
    fetch: Callable[[str], Path | None] = lambda digest: None,
) -> tuple[str, ...]:
    """Copy artifacts that `target` does not have yet; returns those that are lost.

    `fetch` gets a copy of one that `source` does not have, in a folder to remove.
    """
    lost: list[str] = []
    for digest in digests:
        if target.is_intact(digest):
            continue
        if source.is_intact(digest):
            with source.unpacked(digest) as folder:
                target.put(folder, digest)
            continue
        copy = fetch(digest)
        if copy is None:
            lost.append(digest)
            continue
        try:
            target.put(copy, digest)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
    return tuple(lost)


def _artifacts(connection: Connection) -> list[str]:
    digest = tables.artifact.c.digest
    return list(connection.execute(select(digest).order_by(digest)).scalars())


def _count_runs(database: Database) -> int:
    return database.read(
        lambda connection: connection.execute(select(func.count()).select_from(tables.run)).scalar_one()
    )
