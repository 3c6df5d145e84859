"""The processes of `autoopt serve`: a Prefect server and workers, started, watched and ended together."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, TypeAlias

from autoopt.errors import InputError, SystemFailure
from autoopt.orchestrate.server import heartbeats, postgres
from autoopt.orchestrate.server.access import (
    PASSWORD_FILE,
    is_loopback,
    local_url,
    make_password,
    page_settings,
    read_password,
    web_settings,
)
from autoopt.orchestrate.server.connection import (
    DEFAULTS,
    NOTE,
    SERVER,
    check_password,
    external_api,
    read_note,
    set_defaults,
    without_userinfo,
    write_note,
)
from autoopt.orchestrate.server.database import CONNECTION_URL, FORMER_CONNECTION_URL, ServerDatabase, choose_database
from autoopt.orchestrate.server.postgres import LocalPostgres
from autoopt.orchestrate.server.process_reaper import ProcessReaper, end_groups

_SERVER_PASSWORD = "PREFECT_SERVER_API_AUTH_STRING"
_CLIENT_PASSWORD = "PREFECT_API_AUTH_STRING"
START_SECONDS = 120.0
SERVER_NAME, DATABASE_NAME = "server", "postgres"
WORKER: Final = "autoopt.orchestrate.server.worker"
SQLITE_SERVER: Final = "autoopt.orchestrate.server.sqlite_writers"
ENDED_LAST: Final = {SERVER_NAME: 1, DATABASE_NAME: 2}
"""Order of the ends: workers report to the server until they end, and the server writes to its database."""
MAX_RESTARTS = 5
"""A worker that ends is started again at most this often within an hour."""
RESTART_WINDOW_SECONDS = 3600
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The last comes when the terminal is closed."""

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None
LARGEST_BYTES: Final = 10_000_000
"""Size from which a log is set aside."""
GENERATIONS: Final = 3
"""Number of earlier files of each log."""


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _handle_end_signals(handler: Handler) -> dict[int, Handler]:
    """Install a handler of END_SIGNALS; returns the handlers before."""
    with suppress(ValueError):  # only the main thread has signals
        return {number: signal.signal(number, handler) for number in END_SIGNALS}
    return {}


@dataclass
class Supervisor:
    """All processes that one `autoopt serve` has started. A context manager that ends them on exit.

    Inside, SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt.
    """

    home: Path
    host: str = "127.0.0.1"
    port: int = 4200
    say: Callable[[str], None] = print
    api: str = ""
    queues: Sequence[str] = ()
    """The only work queues of the workers; empty for all."""
    password: bool = True
    """False: the server asks for none; only on a loopback address."""
    database: str | None = None
    """Prefect's database, see `choose_database`."""
    _postgres: LocalPostgres | None = None
    _restarts: dict[str, Callable[[], None]] = field(default_factory=dict)
    _ends: dict[str, list[float]] = field(default_factory=dict)
    """Times at which workers ended within the last hour."""
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _reaper: ProcessReaper | None = None
    _handlers: dict[int, Handler] = field(default_factory=dict)
    """The signal handlers before."""

    def __enter__(self) -> Supervisor:
        # A command started with `&` in a shell ignores SIGINT, and so would its children.
        self._handlers = _handle_end_signals(_interrupt)
        (self.home / "logs").mkdir(parents=True, exist_ok=True)
        set_defaults()
        os.environ.setdefault("PREFECT_HOME", str(self.home / "prefect"))
        os.environ["AUTOOPT_HOME"] = str(self.home)
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C must not leave any process behind.
        _handle_end_signals(signal.SIG_IGN)
        note = read_note(self.home)
        if note is not None and note.pid == os.getpid():
            (self.home / NOTE).unlink()
        workers = [child.pid for name, child in self._children.items() if name not in ENDED_LAST]
        end_groups(workers)
        for name in ENDED_LAST:
            if name in self._children:
                end_groups([self._children[name].pid])
        if self._postgres is not None:
            self._postgres.clean_up()
        if self._reaper is not None:
            self._reaper.release()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def server(self) -> str:
        """Use the server in PREFECT_API_URL, or start one; returns its API.

        Raises:
            InputError: the port is taken, the address is reachable by others and no password is wanted, the password is
                wrong, the database is none for Prefect, or another `autoopt serve` uses the same home.
            SystemFailure: the server or its database does not start.
        """
        external = external_api()
        note = read_note(self.home)
        if note is not None and note.pid == os.getpid():  # a container that was restarted has the same process id
            note = None
        if external:
            if self.database is not None:
                message = "the server in PREFECT_API_URL has a database of its own"
                raise InputError(message, where="--database", remedy="omit this option, or unset PREFECT_API_URL")
            self.api = external
            self._wait()
            check_password(external)
            self.say(f"Prefect server: {without_userinfo(external)} (from PREFECT_API_URL)")
            if note is None:
                write_note(self.home, external)
            return self.api
        self._check_address()
        if note is not None:  # both would use one Prefect database
            message = f"another autoopt serve is running here (process {note.pid})"
            raise InputError(message, where=str(self.home), remedy="stop it, or set another AUTOOPT_HOME")
        self.check_port(self.port)
        self.api = f"{local_url(self.host, self.port)}/api"
        makes_password = self.password and not os.environ.get(_SERVER_PASSWORD)
        origin = self._set_password()
        write_note(self.home, self.api, made_password=makes_password)
        database = choose_database(self.home, self.database)
        if database.postgres is not None:
            self._start_postgres(database.postgres)
        self._start_server(database)
        self.say(database.description)
        self.say(origin)
        return self.api

    def _set_password(self) -> str:
        """Set the password of the server and of its clients; returns a line that says where it comes from."""
        if not self.password:
            for name in (_SERVER_PASSWORD, _CLIENT_PASSWORD):
                os.environ.pop(name, None)
            risk = "every user and every program of this machine can run code as you through this server"
            return f"no password: {risk}, and web pages can read its logs"
        chosen = os.environ.get(_SERVER_PASSWORD)
        if chosen:
            os.environ.setdefault(_CLIENT_PASSWORD, chosen)
            return f"password: from {_SERVER_PASSWORD}"
        password = read_password(self.home)
        origin = f"password: as before, in {self.home / PASSWORD_FILE}"
        if password is None:
            password = make_password(self.home)
            origin = f"password: {password}  (shown only now; kept in {self.home / PASSWORD_FILE})"
        os.environ[_SERVER_PASSWORD] = os.environ[_CLIENT_PASSWORD] = password
        return origin

    def _start_postgres(self, server: LocalPostgres) -> None:
        self._postgres = server
        self._launch(DATABASE_NAME, server.command(), postgres.environment(), server.account)
        child = self._children[DATABASE_NAME]
        deadline = time.monotonic() + START_SECONDS
        while not server.is_ready():
            if child.poll() is not None or time.monotonic() > deadline:
                raise SystemFailure("PostgreSQL does not start", where=str(self.log(DATABASE_NAME)))
            time.sleep(0.1)

    def _start_server(self, database: ServerDatabase) -> None:
        os.environ["PREFECT_API_URL"] = self.api
        pages = self.api.removesuffix("/api")
        os.environ.setdefault("PREFECT_SERVER_UI_API_URL", self.api)
        os.environ.setdefault("PREFECT_UI_URL", pages)  # for links in notifications
        program = SQLITE_SERVER if database.is_sqlite else "prefect"
        command = [program, "server", "start", "--host", self.host, "--port", str(self.port)]
        env = {"PREFECT_API_URL": "", **web_settings(pages, self.password), **page_settings(self.home / "prefect-ui")}
        for name, value in SERVER.items():
            # What the user has set takes precedence, but not the defaults for other processes.
            current = os.environ.get(name)
            if current is None or current == DEFAULTS.get(name):
                env[name] = value
        if database.url:
            env[CONNECTION_URL] = database.url
        self._start(SERVER_NAME, command, env)
        self._wait()
        check_password(self.api)
        self.say(f"Prefect server: {pages}")

    def worker(self, pool: str, limit: int | None = None) -> None:
        """Start a worker for a pool, with at most `limit` flow runs at once."""
        self._restarts[pool] = partial(self.worker, pool, limit)
        name = f"{pool}-{socket.gethostname()}-{os.getpid()}"
        command = [WORKER, "worker", "start", "--pool", pool, "--type", "process", "--name", name]
        for queue in self.queues:
            command += ["--work-queue", queue]
        if limit is not None:
            command += ["--limit", str(limit)]
        # Prefect's settings of a worker take precedence over those of its flow runs.
        self._start(pool, command, {"PREFECT_WORKER_QUERY_SECONDS": "1", **heartbeats.environment()})
        self.say(f"worker for pool {pool}: process {self._children[pool].pid}, log {self.log(pool)}")

    def log(self, name: str) -> Path:
        """The log file of one of the processes."""
        return self.home / "logs" / f"{name}.log"

    def watch(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Restart workers if they end. Returns only by a signal.

        `meanwhile` is called twice a second.

        Raises:
            SystemFailure: the server has ended by itself, or another process has ended too often within an hour.
        """
        while True:
            for name, child in list(self._children.items()):
                rotate(self.log(name))
                if child.poll() is None:
                    continue
                now = time.monotonic()
                recent = [ended for ended in self._ends.get(name, ()) if now - ended < RESTART_WINDOW_SECONDS]
                self._ends[name] = [*recent, now]
                if name in ENDED_LAST or len(self._ends[name]) > MAX_RESTARTS:
                    message = f"{name} ended with exit code {child.returncode}"
                    raise SystemFailure(message, where=str(self.log(name)))
                self.say(f"{name} ended with exit code {child.returncode}; restarting it")
                self._restarts[name]()
            meanwhile()
            time.sleep(0.5)

    def _start(self, name: str, command: list[str], env: dict[str, str]) -> None:
        """Start a Python module with the variables of this process and `env`; an empty value removes one."""
        # Only the server needs the URL of its database, which may hold a password.
        merged = {**os.environ, CONNECTION_URL: "", FORMER_CONNECTION_URL: "", **env}
        environment = {variable: value for variable, value in merged.items() if value}
        self._launch(name, [sys.executable, "-m", *command], environment)

    def _launch(self, name: str, command: list[str], environment: dict[str, str], account: str | None = None) -> None:
        """Start a process, as another system user if `account` names one."""
        if self._reaper is None:
            self._reaper = ProcessReaper()
        with self.log(name).open("ab") as log:
            self._children[name] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only this process, which ends the others in order
                user=account,
                group=account,
                extra_groups=postgres.no_groups(account),
            )
        self._reaper.register(self._children[name].pid, ENDED_LAST.get(name, 0))

    def _check_address(self) -> None:
        if not self.password and not is_loopback(self.host):
            remedy = "leave out --no-password, or listen on 127.0.0.1"
            raise InputError(f"others can reach {self.host}, so the server needs a password", remedy=remedy)

    def check_port(self, port: int) -> None:
        """Check that this process can listen on a port.

        Raises:
            InputError: it cannot.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, port))
            except OSError as error:
                remedy = "choose another port, or set PREFECT_API_URL to the running server"
                raise InputError(f"cannot listen on port {port} ({error.strerror})", remedy=remedy) from None

    def _wait(self) -> None:
        """Wait for the server's health check, if this process has started it; else ask once."""
        health = f"{without_userinfo(self.api)}/health"  # needs no password
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(urllib.error.URLError, OSError), urllib.request.urlopen(health, timeout=5):
                return
            child = self._children.get(SERVER_NAME)
            if child is None or child.poll() is not None:
                break
            time.sleep(0.2)
        raise SystemFailure("the Prefect server does not answer", where=without_userinfo(self.api))


def rotate(log: Path, largest: int = LARGEST_BYTES) -> bool:
    """Move the content of a log that has grown too large to `NAME.1`, that of `NAME.1` to `NAME.2`, and so on.

    The log itself stays the same file and is emptied, because processes hold it open; they must append to it. Lines
    that they write between the copy and the emptying are lost.

    Returns:
        True if the log was rotated.
    """
    if not log.exists() or log.stat().st_size <= largest:
        return False
    for number in range(GENERATIONS - 1, 0, -1):
        earlier = _generation(log, number)
        if earlier.exists():
            earlier.replace(_generation(log, number + 1))
    shutil.copyfile(log, _generation(log, 1))
    os.truncate(log, 0)
    return True


def _generation(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")
