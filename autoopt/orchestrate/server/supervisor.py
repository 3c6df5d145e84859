"""`autoopt serve`: a Prefect server and workers as child processes, ended together."""

from __future__ import annotations

import ipaddress
import json
import os
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
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from autoopt.errors import InputError, SystemFailure
from autoopt.orchestrate.server import heartbeats
from autoopt.orchestrate.server.connection import DEFAULTS, NOTE, SERVER, check_password, noted, without_userinfo
from autoopt.orchestrate.server.process_reaper import Heir, end

START_SECONDS = 120.0
SERVER_NAME = "server"
RESTARTS = 5
"""How often a worker that has ended is started again within an hour."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _at_signals(handler: Any) -> dict[int, Any]:
    """Handle the signals that end a process so from now on; how they were handled before."""
    with suppress(ValueError):  # a thread other than the main one has no signals
        ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last when its terminal is closed
        return {number: signal.signal(number, handler) for number in ends}
    return {}


@dataclass
class Served:
    """Everything that one `autoopt serve` has started. A context manager; leaving it ends all of it.

    Within, SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt.
    """

    home: Path
    host: str = "127.0.0.1"
    port: int = 4200
    say: Callable[[str], None] = print
    api: str = ""
    queues: Sequence[str] = ()
    """The only work queues to work for; all where there is none."""
    _limits: dict[str, int | None] = field(default_factory=dict)
    _ends: dict[str, list[float]] = field(default_factory=dict)
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _heir: Heir | None = None
    _handlers: dict[int, Any] = field(default_factory=dict)
    """What the process did at a signal before."""

    def __enter__(self) -> Served:
        self._handlers = _at_signals(_interrupt)  # a shell's `&` has SIGINT ignored, by our children too
        (self.home / "logs").mkdir(parents=True, exist_ok=True)
        for name, value in {**DEFAULTS, "PREFECT_HOME": str(self.home / "prefect")}.items():
            os.environ.setdefault(name, value)
        os.environ["AUTOOPT_HOME"] = str(self.home)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _at_signals(signal.SIG_IGN)  # impatience must not leave anything behind
        if (note := noted(self.home)) is not None and note["pid"] == os.getpid():
            (self.home / NOTE).unlink()
        for last in (False, True):  # workers report to the server until the end
            end([child.pid for name, child in self._children.items() if (name == SERVER_NAME) is last])
        if self._heir is not None:
            self._heir.release()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def server(self) -> str:
        """The API of the server in PREFECT_API_URL, or of one that is started here.

        Raises:
            InputError: the port is taken, the address is open to others and there is no password, the password is
                wrong, or another `autoopt serve` has its server in the same home.
            SystemFailure: the server does not come up.
        """
        given, other = os.environ.get("PREFECT_API_URL"), noted(self.home)
        if other is not None and other["pid"] == os.getpid():  # in a container that was started again
            other = None
        if given:
            self.api = given
            self._wait()
            check_password(given)
            self.say(f"Prefect server: {without_userinfo(given)} (from PREFECT_API_URL)")
        else:
            self._check_address()
            if other is not None:  # it would share its Prefect database
                found = f"an autoopt serve is running here already (process {other['pid']})"
                raise InputError(found, where=str(self.home), remedy="end it, or set another AUTOOPT_HOME")
            self._check_port()
        if other is None:
            self._note(given or self._address)
        if not given:
            self._start_server()
        return self.api

    @property
    def _address(self) -> str:
        """Where processes here reach our own server."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/api"

    def _note(self, api: str) -> None:
        new = self.home / f"{NOTE}.{os.getpid()}"
        new.touch(mode=0o600)
        new.write_text(json.dumps({"api": api, "pid": os.getpid(), "host": socket.gethostname()}))
        new.replace(self.home / NOTE)

    def _start_server(self) -> None:
        self.api = os.environ["PREFECT_API_URL"] = self._address
        pages = self.api.removesuffix("/api")
        os.environ.setdefault("PREFECT_SERVER_UI_API_URL", self.api)
        os.environ.setdefault("PREFECT_UI_URL", pages)  # for links in notifications
        password = os.environ.get("PREFECT_SERVER_API_AUTH_STRING")
        if password:
            os.environ.setdefault("PREFECT_API_AUTH_STRING", password)
        command = ["prefect", "server", "start", "--host", self.host, "--port", str(self.port)]
        given = {name: value for name, value in os.environ.items() if value != DEFAULTS.get(name)}
        own = {name: given.get(name, value) for name, value in SERVER.items()}
        self._start(SERVER_NAME, command, PREFECT_API_URL="", **own)
        self._wait()
        check_password(self.api)
        self.say(f"Prefect server: {pages}")

    def worker(self, pool: str, limit: int | None = None) -> None:
        """A worker for a pool, and what it runs, at most `limit` at once."""
        self._limits[pool] = limit
        name = f"{pool}-{socket.gethostname()}-{os.getpid()}"
        command = ["prefect", "worker", "start", "--pool", pool, "--type", "process", "--name", name]
        for queue in self.queues:
            command += ["--work-queue", queue]
        if limit is not None:
            command += ["--limit", str(limit)]
        self._start(pool, command, PREFECT_WORKER_QUERY_SECONDS="2", **heartbeats.environment())
        self.say(f"worker for pool {pool}: process {self._children[pool].pid}, log {self.log(pool)}")

    def log(self, name: str) -> Path:
        """The log of one of the processes."""
        return self.home / "logs" / f"{name}.log"

    def watch(self) -> None:
        """Start workers that have ended anew; return only when told to, by a signal.

        Raises:
            SystemFailure: the server has ended by itself, or a worker again and again within an hour.
        """
        while True:
            for name, child in list(self._children.items()):
                if child.poll() is None:
                    continue
                now = time.monotonic()
                self._ends[name] = [*(at for at in self._ends.get(name, ()) if now - at < 3600), now]
                if name == SERVER_NAME or len(self._ends[name]) > RESTARTS:
                    raise SystemFailure(f"the {name} has ended with {child.returncode}", where=str(self.log(name)))
                self.say(f"the worker for pool {name} has ended with {child.returncode}; it is started again")
                self.worker(name, self._limits[name])
            time.sleep(0.5)

    def _start(self, name: str, command: list[str], **env: str) -> None:
        environment = {k: v for k, v in {**os.environ, **env}.items() if v}
        self._heir = self._heir or Heir()
        with self.log(name).open("ab") as log:
            self._children[name] = subprocess.Popen(
                [sys.executable, "-m", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we end them in order
            )
        self._heir.entrust(self._children[name].pid, last=name == SERVER_NAME)

    def _check_address(self) -> None:
        try:
            closed = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            closed = self.host == "localhost"
        if not closed and not os.environ.get("PREFECT_SERVER_API_AUTH_STRING"):
            remedy = "set PREFECT_SERVER_API_AUTH_STRING (user:password), or stay on 127.0.0.1"
            raise InputError(f"{self.host} is open to others, and there is no password", remedy=remedy)

    def _check_port(self) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as error:
                remedy = "give another --port, or set PREFECT_API_URL to the server that is there"
                raise InputError(f"cannot listen on port {self.port} ({error.strerror})", remedy=remedy) from None

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            child = self._children.get(SERVER_NAME)
            if child is not None and child.poll() is not None:
                break
            health = f"{without_userinfo(self.api)}/health"  # no password needed
            with suppress(urllib.error.URLError, OSError), urllib.request.urlopen(health, timeout=5):
                return
            if child is None:
                break
            time.sleep(0.2)
        raise SystemFailure("the Prefect server does not answer", where=without_userinfo(self.api))
