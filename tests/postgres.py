"""PostgreSQL for tests: the server in AUTOOPT_TEST_POSTGRES_URL, else one of the tests' own."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from ports import free_port


def programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`, which Debian keeps off the path."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((f for f in folders if (f / "initdb").exists()), None)


class Server:
    """A server of our own in a temporary folder, on a free port of the loopback. The superuser is `autoopt`.

    PostgreSQL refuses to run as root; then the system's user `postgres` runs it.
    """

    def __init__(self) -> None:
        folder = programs()
        if folder is None:
            pytest.skip("no PostgreSQL server: set AUTOOPT_TEST_POSTGRES_URL or install postgresql")
        self._programs = folder
        self.folder = Path(tempfile.mkdtemp(prefix="autoopt-postgres-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(self.folder, "postgres", "postgres")
        self.port = free_port()
        self._run("initdb", "-D", "data", "-U", "autoopt", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://autoopt@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-h 127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off"
        self._run("pg_ctl", "start", "-w", "-D", "data", "-l", "log", "-o", options)

    def crash(self) -> None:
        """End it without a checkpoint: what a crash leaves, it leaves."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", "data")

    def close(self) -> None:
        self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)

    def sql(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def dump(self, database: str) -> dict[str, str]:
        """Every row of every table of a database, as text."""
        import psycopg

        with psycopg.connect(self.url.replace("/postgres", f"/{database}"), autocommit=True) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            return {name: str(connection.execute(f'SELECT * FROM "{name}"'.encode()).fetchall()) for (name,) in tables}

    def _run(self, program: str, *arguments: str) -> None:
        with open(self.folder / "said", "a+") as said:
            done = subprocess.run(
                [str(self._programs / program), *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=said,  # no pipe, which the server would keep open
                stderr=said,
                text=True,
                timeout=120,
                check=False,
                **self._as,
            )
            said.seek(0)
            assert done.returncode == 0, f"{program}: {said.read()[-2000:]}"


@lru_cache(maxsize=1)
def _own() -> Server:
    server = Server()
    atexit.register(server.close)
    return server


def server_url() -> str:
    """The address of a server that all tests of this process share."""
    return os.environ.get("AUTOOPT_TEST_POSTGRES_URL") or _own().url


@contextmanager
def empty_schema() -> Iterator[str]:
    """The address of an empty schema on that server, dropped afterwards."""
    from sqlalchemy import create_engine, text

    server, schema = server_url(), f"test_{uuid.uuid4().hex[:12]}"
    engine = create_engine(server.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    try:
        yield f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3D{schema}"
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
        engine.dispose()


@contextmanager
def database_without_encoding() -> Iterator[str]:
    """The address of an empty database as servers make it in the C locale, dropped afterwards."""
    from sqlalchemy import create_engine, make_url, text

    server = make_url(server_url()).set(drivername="postgresql+psycopg")
    engine, name = create_engine(server, isolation_level="AUTOCOMMIT"), f"test_{uuid.uuid4().hex[:12]}"
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"))
    try:
        yield server.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        engine.dispose()
