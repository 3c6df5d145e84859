"""Addresses, secrets, file systems, and databases that fail."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import postgres
import pytest
from sqlalchemy import Connection, text
from store_helpers import key, start_run

from autoopt.errors import AutooptError, InputError, SystemFailure
from autoopt.settings import settings
from autoopt.store import Store, SweepRecord, open_store
from autoopt.store.sql.database import open_database, read_url

CANARY = "c4nary:Pa55/w@rd"
NOBODY = 65534
QUOTED = "c4nary%3APa55%2Fw%40rd"


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "mysql://root@host/db", "sqlite://", "sqlite:///:memory:", "file.db", "postgresql://me@[::1/db"],
)
def test_a_wrong_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(InputError, match="write sqlite:////"):
        read_url(url)


@pytest.mark.parametrize("password", ["c4n@ry/w:rd#1", "@c4nary", "c4nary@", "c4n@ry?x=1"])
def test_an_address_whose_password_seems_to_be_the_host_is_refused(password: str) -> None:
    with pytest.raises(InputError, match=r"has more than one @; write %40") as error:
        read_url(f"postgresql://me:{password}@host/db")
    assert "c4n" not in str(error.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+psycopg2"])
def test_every_spelling_of_postgresql_means_the_same(scheme: str) -> None:
    url = "postgresql" if scheme == "postgres" else scheme
    assert read_url(f"{url}://u@h/d").drivername == "postgresql+psycopg"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{QUOTED}@127.0.0.1:1/db",
        f"postgresql://user@127.0.0.1:1/db?password={QUOTED}",
        f"postgresql://user:{QUOTED}@127.0.0.1:1/db?sslmode={QUOTED}",
        f"mysql://user:{QUOTED}@host/db",
        f"user:{QUOTED}@host",
    ],
)
def test_no_error_shows_a_password(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_PATIENCE", "0.1")
    settings.cache_clear()
    with pytest.raises(AutooptError) as error:
        open_store(url, tmp_path)
    shown = "".join(traceback.format_exception(error.value)) + repr(error.value)
    assert CANARY not in shown
    assert QUOTED not in shown
    assert "\n" not in str(error.value)


def test_a_failing_statement_does_not_show_its_values(sqlite_store: Store) -> None:
    with pytest.raises(Exception, match="no such column") as error:
        sqlite_store.database.read(lambda c: c.execute(text("SELECT missing FROM run WHERE name = :n"), {"n": CANARY}))
    assert CANARY not in str(error.value)


def test_addresses_in_messages_have_no_password() -> None:
    database = open_database(f"postgresql://user:{QUOTED}@host/db?password={QUOTED}")
    assert database.safe_url == "postgresql://user:***@host/db"


def test_a_home_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be created"):
        open_store(None, tmp_path / "file" / "home")


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "autoopt.db").write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match="not a database"):
        open_store(f"sqlite:///{tmp_path}/autoopt.db", tmp_path)


def test_readers_do_not_wait_for_a_writer(sqlite_store: Store) -> None:
    run = start_run(sqlite_store)
    with sqlite_store.database.transaction(writing=True) as connection:
        connection.execute(text("UPDATE run SET name = 'other'"))
        assert sqlite_store.runs.get(run.id).name == run.name
        with open_store(str(sqlite_store.database.url)) as other:
            assert other.runs.get(run.id).name == run.name


FULL = """
import resource, signal, sys
from pathlib import Path
from autoopt.errors import SystemFailure
from autoopt.store import SweepRecord, Store, open_store
store = open_store(None, Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
for work in (
    lambda: store.artifacts.put(Path(sys.argv[2])),
    lambda: store.sweeps.create(SweepRecord("", "zoo", {"x": "x" * 700_000})),
):
    try:
        work()
    except SystemFailure as error:
        print(error)
"""


def test_a_full_disk_is_reported_in_one_line_and_leaves_nothing_invalid(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.onnx").write_bytes(b"x" * 700_000)
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "home"), str(model)], capture_output=True, text=True, check=True
    )
    artifact, database = done.stdout.splitlines()
    assert "the artifact cannot be stored" in artifact
    assert "full" in database or "I/O" in database
    with open_store(None, tmp_path / "home") as store:
        assert store.artifacts.all() == ()
        digest = store.artifacts.put(model)
        assert store.artifacts.path(digest).read_bytes() == b"x" * 700_000


@pytest.mark.service
def test_a_database_without_an_encoding_serves_as_any_other(tmp_path: Path) -> None:
    with postgres.database_without_encoding() as url, open_store(url, tmp_path) as store:
        store.sweeps.create(SweepRecord("", "größer"))
        assert store.sweeps.names() == ["größer"]


@pytest.mark.service
@pytest.mark.parametrize("asked", [None, 7])
def test_both_ends_of_a_connection_notice_that_the_other_is_gone(postgres_url: str, asked: int | None) -> None:
    database = open_database(postgres_url if asked is None else f"{postgres_url}&keepalives_idle={asked}")

    def client_options(connection: Connection) -> tuple[int, int]:
        driver = connection.connection.driver_connection
        with socket.socket(fileno=os.dup(driver.fileno())) as end:
            idle = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            return idle, end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    assert database.read(client_options) == (asked or 15, 30_000)
    for name, value in {"keepalives_idle": "15", "keepalives_count": "3", "user_timeout": "30000"}.items():
        setting = database.read(lambda c, name=name: c.execute(text(f"SHOW tcp_{name}")).scalar_one())
        assert setting == value
    database.close()


@pytest.mark.service
def test_work_goes_on_after_the_server_dropped_every_connection(postgres_url: str, tmp_path: Path) -> None:
    with open_store(postgres_url, tmp_path) as store:
        run = start_run(store)
        with open_store(postgres_url, tmp_path) as other:
            assert isinstance(other, Store)
            assert isinstance(store, Store)
            mine = store.database.read(lambda c: c.execute(text("SELECT pg_backend_pid()")).scalar_one())
            other.database.write(lambda c: c.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": mine}))
        assert store.runs.get(run.id).id == run.id
        assert store.claims.acquire("pass_run", key("work"))


def test_a_server_that_stays_down_is_reported_in_one_line() -> None:
    """It may be restarting: exit code 3, which CI answers by trying again, and not 2, wrong input."""
    database = open_database(f"postgresql://user:{QUOTED}@127.0.0.1:1/db", patience=0.1)
    for first in (database.read, lambda work: database.run_first(work, writing=True)):
        with pytest.raises(SystemFailure, match=r"refused.*tried for 0 s; is it running\?") as error:
            first(lambda connection: connection.execute(text("SELECT 1")))
        assert "\n" not in str(error.value)
        assert CANARY not in str(error.value)


@pytest.mark.parametrize("name", ["a?mode=memory", "a#b", "a%20b", "a b"])
def test_no_character_of_a_home_has_a_meaning(tmp_path: Path, name: str) -> None:
    with open_store(None, tmp_path / name) as store:
        store.sweeps.create(SweepRecord("", "x"))
    assert (tmp_path / name / "autoopt.db").is_file()
    with open_store(None, tmp_path / name) as store:
        assert store.sweeps.names() == ["x"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o022, 0o644), (0o077, 0o600)])
def test_the_umask_tells_who_may_write_a_new_store(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with open_store(home=tmp_path) as store:
            start_run(store)
    finally:
        os.umask(before)
    assert (tmp_path / "autoopt.db").stat().st_mode & 0o777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_user_who_can_only_read_leaves_no_files_that_lock_the_owner_out() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        home = Path(folder)
        home.chmod(0o777)
        with open_store(home=home) as store:
            run = start_run(store)
        before = {file: file.stat().st_uid for file in home.iterdir()}
        pid = os.fork()
        if pid == 0:
            found = None
            try:
                os.setresuid(NOBODY, NOBODY, NOBODY)
                with open_store(home=home) as store:
                    found = [each.id for each in store.runs.all()]
            finally:
                os._exit(found != [run.id])
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert {file: file.stat().st_uid for file in home.iterdir()} == before
