"""Backups: a copy of the store made while it is used, brought back into either kind of database."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from run_comparison import canonical
from store_helpers import age, digests, finished_run, put, start_run

from autoopt.errors import InputError, SystemFailure
from autoopt.store import EventRecord, open_store
from autoopt.store.files.artifacts import ArtifactFiles
from autoopt.store.maintenance.backup import backup, restore
from autoopt.store.maintenance.gc import collect
from autoopt.store.maintenance.verify import verify
from autoopt.store.sql.store import SqlStore


def test_a_backup_brings_everything_back(database_store: SqlStore, url: str, tmp_path: Path) -> None:
    """From either kind of database, into SQLite."""
    first, second = finished_run(database_store, b"first"), finished_run(database_store, b"second")
    copied = backup(database_store, tmp_path / "backup")
    assert (copied.runs, copied.artifacts, copied.lost) == (2, 6, ())
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == ["artifacts", "autoopt.db"]
    with open_store(f"sqlite:///{tmp_path}/new/autoopt.db", tmp_path / "new") as store:
        assert restore(tmp_path / "backup", store).runs == 2
        for run in (first, second):
            assert canonical(store, run) == canonical(database_store, run)
        assert verify(store).ok
        assert start_run(store).id, "numbering goes on"


def test_a_backup_goes_into_either_kind_of_database(url: str, sqlite_home: SqlStore, tmp_path: Path) -> None:
    run = finished_run(sqlite_home)
    backup(sqlite_home, tmp_path / "backup")
    with open_store(url, tmp_path / "home") as store:
        restore(tmp_path / "backup", store)
        assert canonical(store, run) == canonical(sqlite_home, run)
        store.events.add(EventRecord("note", None, "numbering goes on"))
        assert start_run(store, b"another").id


@pytest.fixture
def sqlite_home(tmp_path: Path) -> SqlStore:
    """A store beside the one under test."""
    store = open_store(f"sqlite:///{tmp_path}/original/autoopt.db", tmp_path / "original")
    assert isinstance(store, SqlStore)
    return store


def test_a_backup_is_made_while_another_process_writes_and_is_brought_up_to_date(
    sqlite_store: SqlStore, tmp_path: Path
) -> None:
    finished_run(sqlite_store, b"first")
    with sqlite_store.database.transaction(writing=True) as connection:
        connection.exec_driver_sql("UPDATE run SET name = 'half'")
        backup(sqlite_store, tmp_path / "backup")
    with closing(sqlite3.connect(tmp_path / "backup" / "autoopt.db")) as connection:
        assert connection.execute("SELECT name FROM run").fetchall() == [("net cpu",)]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "backup").rglob("model.onnx")}
    finished_run(sqlite_store, b"second")
    assert backup(sqlite_store, tmp_path / "backup").runs == 2
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_what_is_lost_is_named_and_stays_repairable(sqlite_store: SqlStore, tmp_path: Path) -> None:
    finished_run(sqlite_store)
    digest = min(digests(sqlite_store))
    shutil.rmtree(sqlite_store.files.folder(digest))
    assert backup(sqlite_store, tmp_path / "backup").lost == (digest,)
    with open_store(None, tmp_path / "new") as store:
        assert restore(tmp_path / "backup", store).lost == (digest,)
        assert [problem.digest for problem in verify(store).problems] == [digest]


def test_a_backup_does_not_overwrite(sqlite_store: SqlStore, tmp_path: Path) -> None:
    finished_run(sqlite_store)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "diary.txt").write_text("mine")
    for folder, reason in (
        (tmp_path / "other", "neither empty nor a backup"),
        (tmp_path / "other" / "diary.txt", "is a file"),
        (sqlite_store.home, "is the store itself"),
    ):
        with pytest.raises(InputError, match=reason):
            backup(sqlite_store, folder)
    backup(sqlite_store, tmp_path / "backup")
    with pytest.raises(InputError, match="restored into an empty store"):
        restore(tmp_path / "backup", sqlite_store)


def test_a_backup_that_was_cut_short_is_said_and_continued(
    sqlite_store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished_run(sqlite_store)

    def full_disk(*_: object) -> None:
        raise SystemFailure("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactFiles, "put", full_disk)
        with pytest.raises(SystemFailure):
            backup(sqlite_store, tmp_path / "backup")
    with open_store(None, tmp_path / "new") as store:
        with pytest.raises(InputError, match="not completed; repeat 'autoopt store backup'"):
            restore(tmp_path / "backup", store)
        backup(sqlite_store, tmp_path / "backup")
        restore(tmp_path / "backup", store)
        assert canonical(store, run) == canonical(sqlite_store, run)


def test_only_a_backup_is_restored(sqlite_store: SqlStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a backup"):
        restore(tmp_path, sqlite_store)
    (tmp_path / "autoopt.db").write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match="is damaged"):
        restore(tmp_path, sqlite_store)
    backup(sqlite_store, tmp_path / "backup")
    with closing(sqlite3.connect(tmp_path / "backup" / "autoopt.db")) as connection:
        connection.execute("DROP TABLE event")
    with pytest.raises(InputError, match="is damaged: it lacks tables"):
        restore(tmp_path / "backup", sqlite_store)


def test_gc_keeps_what_the_lost_database_may_have_named(sqlite_store: SqlStore, tmp_path: Path) -> None:
    finished_run(sqlite_store, b"first")
    backup(sqlite_store, tmp_path / "backup")
    finished_run(sqlite_store, b"made after the backup")
    every = digests(sqlite_store)
    sqlite_store.close()
    (sqlite_store.home / "autoopt.db").unlink()
    with open_store(None, sqlite_store.home, adopt=True) as store:
        assert isinstance(store, SqlStore)
        restore(tmp_path / "backup", store)
        unused = put(store, b"made and left after the restore")
        age(store)
        store.database.write(lambda c: c.exec_driver_sql("UPDATE event SET time = time - 7200"))
        store.artifacts.path(unused)
        age(store, 3601.0)
        store.artifacts.files._touched.clear()
        found = collect(store)
        assert (found.artifacts, found.spared) == ((unused,), 3)
        assert collect(store, dry_run=False).spared == 3
        assert digests(store) == every
        assert len(collect(store, dry_run=False, lost=True).artifacts) == 3
