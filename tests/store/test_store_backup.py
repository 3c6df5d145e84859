"""Backups: a copy of the store made while it is used, brought back into either kind of database."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from run_comparison import canonical
from sqlalchemy import text
from store_helpers import age, digests, finished_run, release, start_run

from autoopt.errors import InputError, SystemFailure
from autoopt.store import Store, open_store
from autoopt.store.artifact_files import ArtifactFiles
from autoopt.store.backup import backup, restore, restore_store, set_aside_damaged
from autoopt.store.gc import collect
from autoopt.store.records import ReleaseRecord
from autoopt.store.sql.database import open_database
from autoopt.store.verify import verify


def test_a_backup_brings_everything_back(database_store: Store, url: str, tmp_path: Path) -> None:
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


def test_a_backup_goes_into_either_kind_of_database(url: str, sqlite_home: Store, tmp_path: Path) -> None:
    run = finished_run(sqlite_home)
    backup(sqlite_home, tmp_path / "backup")
    with open_store(url, tmp_path / "home") as store:
        restore(tmp_path / "backup", store)
        assert canonical(store, run) == canonical(sqlite_home, run)
        store.releases.add(ReleaseRecord(release("zoo", "numbering goes on"), run, rolled_back=False, by="ann@forge"))
        assert start_run(store, b"another").id


@pytest.fixture
def sqlite_home(tmp_path: Path) -> Store:
    """A store beside the one under test."""
    store = open_store(f"sqlite:///{tmp_path}/original/autoopt.db", tmp_path / "original")
    assert isinstance(store, Store)
    return store


def test_a_backup_is_made_while_another_process_writes_and_is_brought_up_to_date(
    sqlite_store: Store, tmp_path: Path
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


def test_what_is_lost_is_named_and_stays_repairable(sqlite_store: Store, tmp_path: Path) -> None:
    finished_run(sqlite_store)
    digest = min(digests(sqlite_store))
    shutil.rmtree(sqlite_store.files.folder(digest))
    assert backup(sqlite_store, tmp_path / "backup").lost == (digest,)
    with open_store(None, tmp_path / "new") as store:
        assert restore(tmp_path / "backup", store).lost == (digest,)
        assert [problem.digest for problem in verify(store).problems] == [digest]


def test_a_backup_does_not_overwrite(sqlite_store: Store, tmp_path: Path) -> None:
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
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_only_a_backup_is_restored(sqlite_store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a backup"):
        restore(tmp_path, sqlite_store)
    (tmp_path / "autoopt.db").write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match="is damaged"):
        restore(tmp_path, sqlite_store)
    backup(sqlite_store, tmp_path / "backup")
    with closing(sqlite3.connect(tmp_path / "backup" / "autoopt.db")) as connection:
        connection.execute("DROP TABLE worker_death")
    with pytest.raises(InputError, match="is damaged: it lacks tables"):
        restore(tmp_path / "backup", sqlite_store)


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_new_store_does_not_begin_beside_artifacts(sqlite_store: Store, left: str) -> None:
    finished_run(sqlite_store)
    sqlite_store.close()
    (sqlite_store.home / "autoopt.db").unlink()
    if left == "an empty file":
        (sqlite_store.home / "autoopt.db").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(InputError, match=r"holds 3 artifacts of another one; .*store restore"):
            open_store(None, sqlite_store.home)


def test_a_sound_database_is_not_set_aside(sqlite_store: Store) -> None:
    finished_run(sqlite_store)
    assert set_aside_damaged(sqlite_store.home / "autoopt.db") is None


def test_artifacts_that_the_backup_does_not_name_are_orphans(sqlite_store: Store, tmp_path: Path) -> None:
    run = finished_run(sqlite_store, b"first")
    backup(sqlite_store, tmp_path / "backup")
    before = digests(sqlite_store)
    finished_run(sqlite_store, b"made after the backup")
    sqlite_store.close()
    (sqlite_store.home / "autoopt.db").unlink()
    assert restore_store(tmp_path / "backup", None, sqlite_store.home).lost == ()
    with open_store(None, sqlite_store.home) as store:
        assert [record.id for record in store.runs.all()] == [run]
        result = verify(store)
        assert (result.ok, len(result.orphans)) == (True, 3)
        age(store)
        assert set(collect(store, dry_run=False).artifacts) == set(result.orphans)
        assert digests(store) == before


@pytest.mark.service
def test_a_missing_table_on_a_server_is_said(postgres_url: str, tmp_path: Path) -> None:
    open_store(postgres_url, tmp_path).close()
    assert set_aside_damaged(postgres_url) is None
    database = open_database(postgres_url)
    database.write(lambda connection: connection.execute(text("DROP TABLE trial")))
    with pytest.raises(InputError, match=r"the table 'trial' is missing; bring back a backup with the server's tools"):
        set_aside_damaged(postgres_url)
