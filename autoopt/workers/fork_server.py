"""The pool's side of the fork servers: processes that have imported what workers need, and start them by forking.

Starting a worker as a program takes half a second of CPU time, most of it for importing numpy and onnx; a fork takes
milliseconds. There is one server for each interpreter and its variables; it imports nothing that starts threads of its
own, and never runs anyone's code. `child` is the server's side.
"""

from __future__ import annotations

import io
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from autoopt.workers import protocol
from autoopt.workers.protocol import LENT_MODULES, PYTHON_VERSION
from autoopt.working_folder import temporary_folder

KEPT_SERVERS: Final = 2
"""Fork servers that stay for later pools; others end with their last worker."""
EXIT_SECONDS: Final = 1.0
"""Time for a server to end after its last worker, unless it imports a library."""
_WITHHELD = ("AUTOOPT_DB_URL", "PGPASSWORD", LENT_MODULES)
_OWN_INTERPRETER = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
_QUIET = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
_CHILD: Final = Path(__file__).with_name("child.py")


def child_environment(python: str, extra: Mapping[str, str] | None = None, lend: bool = False) -> dict[str, str]:
    """Build the environment of a worker: this process's variables without secrets, and with a fixed hash seed.

    `extra` variables come on top. With `lend`, the worker imports the modules installed here that its own interpreter
    lacks.
    """
    withheld = set(_WITHHELD)
    if python != sys.executable:  # module paths of this interpreter mean nothing to another one
        withheld.update(_OWN_INTERPRETER)
    public = [name for name in os.environ if name not in withheld and not name.startswith("PREFECT_")]
    env = _QUIET | {name: os.environ[name] for name in public}
    env["PYTHONHASHSEED"] = "0"
    if lend:
        folders = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        env[LENT_MODULES] = os.pathsep.join([PYTHON_VERSION, *folders])
    env.update(extra or {})
    return env


def startup_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Select the variables of a worker that may matter to the start and the imports of its interpreter.

    Those of autoopt itself and the folder for temporary files differ between workers of the same interpreter.
    """
    return {
        name: value
        for name, value in env.items()
        if name == LENT_MODULES or not name.startswith(("AUTOOPT_", "PYTEST_", "TMPDIR"))
    }


class ForkServer:
    """A server of one interpreter. Thread-safe.

    Raises:
        OSError: there is no such interpreter, or the system has no room for another process.
    """

    def __init__(self, python: str, env: Mapping[str, str]) -> None:
        self.preloaded: list[str] = []
        self._lock = threading.Lock()
        self._output = tempfile.TemporaryFile(dir=temporary_folder())  # noqa: SIM115  open as long as the server
        self._socket, requests = socket.socketpair()
        _made.add(self)
        with requests:
            self._process = subprocess.Popen(
                [python, "-P", str(_CHILD)],
                stdin=requests.fileno(),
                stdout=self._output,
                stderr=self._output,
                env=dict(env),
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> bytes:
        """The last of what imports, or a failing start, have printed."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), protocol.MAX_DETAILS_CHARS, max(0, size - protocol.MAX_DETAILS_CHARS))

    def preload(self, modules: Sequence[str]) -> bool:
        """Have later workers start with these modules imported; False if they do already. Returns at once."""
        new = [module for module in modules if module not in self.preloaded]
        if new:
            self.preloaded += new
            with suppress(OSError):  # the server has ended, as the next worker will show
                self._send({"preload": new})
        return bool(new)

    def fork(self, env: Mapping[str, str]) -> ForkedWorker:
        """Start a worker with these variables in the current folder; returns at once.

        Raises:
            OSError: there are too many open files.
        """
        ends: list[int] = []
        try:
            for _ in range(4):
                ends += os.pipe()
            read_requests, requests, replies, write_replies, errors, write_errors, status, write_status = ends
            theirs = [read_requests, write_replies, write_errors, write_status]
            folder = ""
            with suppress(FileNotFoundError):  # it was removed
                folder = os.getcwd()
            with suppress(BrokenPipeError, ConnectionResetError):  # a worker that ended at its start shows why
                self._send({"env": dict(env), "folder": folder}, theirs)
        except BaseException:
            for end in ends:
                os.close(end)
            raise
        for end in theirs:
            os.close(end)
        return ForkedWorker(self, requests, replies, errors, status)

    def disown(self) -> None:
        """Leave the server to the process of which this one is a fork: it ends when nobody has its socket."""
        self._socket.close()

    def _send(self, message: Mapping[str, object], descriptors: Sequence[int] = ()) -> None:
        line = protocol.encode(message)
        header = str(len(line)).zfill(protocol.HEADER_BYTES).encode()
        with self._lock:
            socket.send_fds(self._socket, [header], descriptors)
            self._socket.sendall(line)

    def exit_code(self) -> int:
        """The exit code of the server, which has closed the descriptors of a worker that did not end before it."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(EXIT_SECONDS)
        return -signal.SIGKILL

    def retire(self) -> None:
        """Start no further workers: the server ends with its last one."""
        with suppress(OSError):  # it has ended
            self._send({})

    def end(self) -> None:
        """End the server and its workers; kill it if that takes long."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_made: weakref.WeakSet[ForkServer] = weakref.WeakSet()
"""All servers that this process has started."""


def _disown_all() -> None:
    for server in _made:
        server.disown()


os.register_at_fork(after_in_child=_disown_all)


class ForkedWorker:
    """A worker, as the process that asked for it holds it: three pipes, and the server's report of its end."""

    def __init__(self, server: ForkServer, requests: int, replies: int, errors: int, status: int) -> None:
        self.server = server
        self.requests = io.FileIO(requests, "w")
        self.replies = io.FileIO(replies)
        self.errors = io.FileIO(errors)
        self._status = io.FileIO(status)
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code once the worker and all that it started have ended, negative for a signal; else None."""
        return self.wait(0)

    def wait(self, seconds: float) -> int | None:
        """Wait for the end; like `poll` otherwise."""
        if self._code is None:
            ready = select.poll()
            ready.register(self._status, select.POLLIN)
            if ready.poll(seconds * 1000):
                report = self._status.read(64)
                self._code = int(report) if report else self.server.exit_code()
        return self._code

    def end(self, worker: int, seconds: float) -> None:
        """Kill the worker, and wait at most `seconds` until the server has seen to all that it started.

        If its process id is not known, it has not begun, perhaps behind a long import, and ends as soon as it does.
        """
        self.requests.close()
        if worker and (self.poll() is None or not self.server.alive):  # a dead server has killed no group
            with suppress(OSError):
                os.killpg(worker, signal.SIGKILL)
        self.wait(seconds if worker else EXIT_SECONDS)
        for pipe in (self.replies, self.errors, self._status):
            pipe.close()
        self._code = self._code or 0


_Key: TypeAlias = tuple[int, str, frozenset[tuple[str, str]]]
"""The process that owns the server (a fork of it does not), the interpreter, and the variables of its start."""
_servers: dict[_Key, ForkServer] = {}
_guard = threading.Lock()


def fork_server(python: str, env: Mapping[str, str]) -> ForkServer:
    """Return the running server of an interpreter for workers with these variables; start one if there is none.

    Raises:
        OSError: as in `ForkServer`.
    """
    startup = startup_variables(env)
    key = (os.getpid(), python, frozenset(startup.items()))
    with _guard:
        # Taken out and put back: the last servers are those that were used last.
        server = _servers.pop(key, None)
        if server is None or not server.alive:
            modules = server.preloaded if server else []
            server = ForkServer(python, startup)
            server.preload(modules)
        _servers[key] = server
        for old in list(_servers)[:-KEPT_SERVERS]:
            _servers.pop(old).retire()
    return server


def preload(python: str, env: Mapping[str, str], modules: Sequence[str]) -> bool:
    """Have later workers of an interpreter start with these modules imported; False if they do already.

    Returns at once, and does nothing if there is no such interpreter: starting a worker reports that. The import of
    `modules` starts no threads. `env` holds the variables of the workers.
    """
    with suppress(OSError):
        return fork_server(python, env).preload(modules)
    return False


def start_worker(python: str, env: Mapping[str, str]) -> ForkedWorker:
    """Start a worker of an interpreter with these variables.

    Raises:
        OSError: as in `ForkServer`.
    """
    return fork_server(python, env).fork(env)


def end_servers() -> None:
    """End the servers of this process; their workers have ended."""
    with _guard:
        own = [key for key in _servers if key[0] == os.getpid()]
        servers = list(map(_servers.pop, own))
    for server in servers:
        server.end()
