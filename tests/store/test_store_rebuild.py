"""A store whose database was damaged or lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from run_comparison import canonical
from sqlalchemy import text
from store_helpers import digests, finished_run

from autoopt.errors import AutooptError, InputError
from autoopt.store import open_store
from autoopt.store.maintenance.rebuild import adopt_artifacts, salvage, set_aside_damaged
from autoopt.store.sql.database import open_database
from autoopt.store.sql.store import SqlStore


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_new_store_does_not_begin_beside_artifacts(sqlite_store: SqlStore, left: str) -> None:
    finished_run(sqlite_store)
    sqlite_store.close()
    (sqlite_store.home / "autoopt.db").unlink()
    if left == "an empty file":
        (sqlite_store.home / "autoopt.db").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(InputError, match=r"holds 3 artifacts: a database was lost; .*store restore.*store repair"):
            open_store(None, sqlite_store.home)


def test_another_database_does_not_begin_in_the_folder_of_a_store(sqlite_store: SqlStore) -> None:
    finished_run(sqlite_store)
    sqlite_store.close()
    with pytest.raises(InputError, match=r"cannot share the folder of .*autoopt\.db; set AUTOOPT_HOME to a folder"):
        open_store(f"sqlite:///{sqlite_store.home / 'other.db'}", sqlite_store.home)


def test_readable_rows_of_a_damaged_database_are_saved(sqlite_store: SqlStore) -> None:
    runs = [finished_run(sqlite_store, f"run {number}".encode()) for number in range(8)]
    whole = {run: canonical(sqlite_store, run) for run in runs}
    every = digests(sqlite_store)
    sqlite_store.close()
    file = sqlite_store.home / "autoopt.db"
    damage(file)
    aside = set_aside_damaged(file)
    assert aside == sqlite_store.home / "autoopt.db.damaged-1"
    content = aside.read_bytes()
    with open_store(None, sqlite_store.home, adopt=True) as store:
        assert salvage(store, aside) > 0
        adopt_artifacts(store)
        assert digests(store) == every
        assert set(runs) >= {run.id for run in store.runs.all()}
        complete = [run.id for run in store.runs.all() if canonical(store, run.id) == whole[run.id]]
        assert complete
    assert aside.read_bytes() == content


def damage(file: Path) -> None:
    """Overwrite a page that holds rows, not the schema."""
    with open(file, "r+b") as stream:
        stream.seek(os.path.getsize(file) // 4096 * 3 // 4 * 4096)
        stream.write(b"\xff" * 4096)


def test_what_is_no_database_is_set_aside_with_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "autoopt.db"
    file.write_bytes(b"not a database" * 100)
    with pytest.raises(AutooptError, match=r"not a database; .*store restore FOLDER"):
        open_store(None, tmp_path)
    aside = set_aside_damaged(file)
    assert aside is not None
    assert aside.read_bytes() == b"not a database" * 100
    with open_store(None, tmp_path, adopt=True) as store:
        assert salvage(store, aside) == 0


def test_a_sound_database_is_not_set_aside(sqlite_store: SqlStore) -> None:
    finished_run(sqlite_store)
    assert set_aside_damaged(sqlite_store.home / "autoopt.db") is None


def test_damaged_artifacts_are_not_adopted(sqlite_store: SqlStore) -> None:
    finished_run(sqlite_store)
    bad, *good = sorted(digests(sqlite_store))
    model = sqlite_store.files.folder(bad) / "model.onnx"
    model.chmod(0o644)
    model.write_bytes(b"worse")
    sqlite_store.close()
    (sqlite_store.home / "autoopt.db").unlink()
    with open_store(None, sqlite_store.home, adopt=True) as store:
        adopted = adopt_artifacts(store)
    assert (list(adopted.digests), adopted.damaged) == (good, (bad,))


@pytest.mark.service
def test_a_missing_table_on_a_server_is_said(postgres_url: str, tmp_path: Path) -> None:
    open_store(postgres_url, tmp_path).close()
    assert set_aside_damaged(postgres_url) is None
    database = open_database(postgres_url)
    database.write(lambda connection: connection.execute(text("DROP TABLE trial")))
    with pytest.raises(InputError, match=r"the table 'trial' is missing; bring back a backup with the server's tools"):
        set_aside_damaged(postgres_url)
