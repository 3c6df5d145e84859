"""A PostgreSQL server of its own for Prefect: created once, ended and started again on the same data."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest
from children import HANG_SECONDS
from serving import eventually

from autoopt.errors import SystemFailure
from autoopt.orchestrate.server import postgres
from autoopt.orchestrate.server.postgres import (
    FOLDER,
    MAX_SOCKET_FOLDER,
    LocalPostgres,
    PostgresUnavailable,
    local_postgres,
    no_groups,
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that other users may enter, as root's server needs; that of pytest is closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="autoopt-home-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def running(server: LocalPostgres) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        server.command(),
        env=postgres.environment(),
        user=server.account,
        group=server.account,
        extra_groups=no_groups(server.account),
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(server.is_ready)
        yield process
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


async def ask(server: LocalPostgres, *statements: str) -> object:
    """The first value of the last statement's first row."""
    connection = await asyncpg.connect(host=str(server.socket_folder), user="autoopt", database="postgres")
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetchval(statements[-1])
    finally:
        await connection.close()


@pytest.mark.service
def test_data_outlive_the_server_and_one_left_behind_is_ended(home: Path) -> None:
    try:
        server = local_postgres(home)
    except PostgresUnavailable as error:
        pytest.skip(str(error))
    assert (home / FOLDER).stat().st_mode & 0o777 == 0o700
    assert not server.is_ready()
    with running(server) as left_behind:
        assert asyncio.run(ask(server, "CREATE TABLE t (x int)", "INSERT INTO t VALUES (7) RETURNING x")) == 7
        assert asyncio.run(ask(server, "SHOW listen_addresses")) == ""
        again = local_postgres(home)  # as by a process that was killed together with its reaper
        assert left_behind.wait(HANG_SECONDS) == 0
    with running(again):
        assert asyncio.run(ask(again, "SELECT x FROM t")) == 7
    (server.data / "PG_VERSION").write_text("1\n")
    with pytest.raises(SystemFailure, match="needs PostgreSQL 1; install PostgreSQL 1, or move this folder away"):
        local_postgres(home)


@pytest.mark.service
def test_the_socket_folder_of_a_killed_process_is_removed_at_the_next_start(home: Path) -> None:
    long = home / ("x" * MAX_SOCKET_FOLDER)
    long.mkdir(mode=0o755)
    killed = (
        "import os, sys; from pathlib import Path; from autoopt.orchestrate.server.postgres import local_postgres;"
        "print(local_postgres(Path(sys.argv[1])).socket_folder, flush=True); os.kill(os.getpid(), 9)"
    )
    try:
        with running(local_postgres(long)) as process:
            assert process.poll() is None
    except PostgresUnavailable as error:
        pytest.skip(str(error))
    ended = subprocess.run([sys.executable, "-c", killed, str(long)], capture_output=True, text=True)
    left = Path(ended.stdout.strip())
    assert ended.returncode == -9
    assert left.is_dir()
    server = local_postgres(long)
    assert not left.parent.exists()
    server.clean_up()
    assert not server.socket_folder.parent.exists()


def test_a_machine_without_postgresql_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(postgres, "PACKAGE", "no_such_package")
    with pytest.raises(PostgresUnavailable, match="no PostgreSQL is installed"):
        local_postgres(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user")
def test_root_names_the_folder_that_the_other_user_may_not_enter(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "initdb").touch(mode=0o755)
    (home / "postgres").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(home))
    closed = home / "closed"
    (closed / "home").mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(PostgresUnavailable, match=rf"does not run as root, and user postgres may not enter {closed}$"):
        local_postgres(closed / "home")
    monkeypatch.setattr(postgres, "ACCOUNT", "no-such-user")
    with pytest.raises(PostgresUnavailable, match="does not run as root, and there is no user no-such-user"):
        local_postgres(closed / "home")


def test_variables_with_passwords_do_not_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "me:canary")
    assert "PATH" in postgres.environment()
    assert "canary" not in str(postgres.environment())
