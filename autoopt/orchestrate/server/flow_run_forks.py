"""The fork server of a worker: flow runs are forks of a process that has imported Prefect and autoopt.

As programs of their own, they would spend seconds on these imports whenever the search moves to another chain. The
server has one thread, never runs a flow and ends with its worker. `forked_flow_run` asks it for forks, over a socket in
a folder that only this user can open.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from autoopt.orchestrate.server.forked_flow_run import ENGINE, HEADER_BYTES, SOCKET
from autoopt.workers.keeper import end_with_parent
from autoopt.workers.pool import WARM, start_ahead
from autoopt.working_folder import working_folder

PRELOADED: Final = (
    "prefect.flow_engine",
    "prefect.task_engine",
    "prefect.deployments",
    "flows.tune_chain",
    "flows.optimize_model",
    "flows.nightly_sweep",
    "autoopt.store.sql.store",
)


@dataclass(frozen=True)
class _Request:
    """The attributes that a flow run's process is to have."""

    environment: dict[str, str]
    folder: str
    output: list[int]
    """Descriptors of its standard output and error."""


@contextmanager
def fork_server() -> Iterator[str]:
    """Start a fork server; gives its folder. It ends with this process, after the flow runs that it has forked."""
    with working_folder() as folder, socket.socket(socket.AF_UNIX) as listener:
        with _inside(folder):
            listener.bind(SOCKET)
        listener.listen(64)
        command = [sys.executable, "-m", __name__, str(listener.fileno())]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()], start_new_session=True)
        listener.close()  # a flow run's process starts by itself if the server has died
        try:
            yield str(folder)
        finally:
            assert process.stdin
            process.stdin.close()


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Be in a folder: its path may be longer than the address of a socket can be."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class Forks:
    """The server's side: it forks a process for each connection, and watches both."""

    def __init__(self, listener: socket.socket) -> None:
        self._selector = selectors.DefaultSelector()
        self._processes: dict[socket.socket, int] = {}
        self._closing = False
        self._request: _Request | None = None
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(sys.stdin, selectors.EVENT_READ, self._stop_accepting)

    def serve(self) -> _Request | None:
        """Fork until the worker has ended; returns in each fork, with its request, and at the end with None."""
        while self._processes or not self._closing:
            for key, _ in self._selector.select():
                key.data()
                if self._request is not None:
                    return self._request
        return None

    def close(self) -> None:
        """Close what a fork has inherited and does not need."""
        endings = [key.fileobj for key in self._selector.get_map().values() if isinstance(key.fileobj, int)]
        for ending in endings:
            os.close(ending)
        for connection in (self._listener, *self._processes):
            connection.close()
        self._selector.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        request = _receive(connection)
        if request is None:
            connection.close()
            return
        process = os.fork()
        if not process:
            connection.close()
            self._request = request
            return
        for descriptor in request.output:
            os.close(descriptor)
        _send(connection, process)
        self._processes[connection] = process
        self._selector.register(connection, selectors.EVENT_READ, partial(self._kill, connection))
        ending = os.pidfd_open(process)
        self._selector.register(ending, selectors.EVENT_READ, partial(self._report, connection, ending))

    def _stop_accepting(self) -> None:
        """The worker has ended."""
        self._closing = True
        self._selector.unregister(sys.stdin)
        self._selector.unregister(self._listener)

    def _kill(self, connection: socket.socket) -> None:
        """Kill a flow run whose small process is gone."""
        if connection in self._processes:
            self._selector.unregister(connection)
            os.kill(self._processes[connection], signal.SIGKILL)

    def _report(self, connection: socket.socket, ending: int) -> None:
        """Tell the small process how its flow run has ended."""
        self._selector.unregister(ending)
        os.close(ending)
        _, status = os.waitpid(self._processes.pop(connection), 0)
        if connection in self._selector.get_map():
            self._selector.unregister(connection)
        _send(connection, os.waitstatus_to_exitcode(status))
        connection.close()


def _receive(connection: socket.socket) -> _Request | None:
    """Read a request; None if the process that sent it has died."""
    header, descriptors, _, _ = socket.recv_fds(connection, HEADER_BYTES, 2)
    if len(header) < HEADER_BYTES:
        return None
    document = connection.recv(int(header), socket.MSG_WAITALL)
    if len(document) < int(header):
        return None
    request = json.loads(document)
    return _Request(request["environment"], request["folder"], descriptors)


def _send(connection: socket.socket, number: int) -> None:
    with suppress(OSError):
        connection.sendall(f"{number}\n".encode())


def become(request: _Request) -> None:
    """Make this fork the process of a flow run, as if it had been started as a program."""
    from prefect.context import refresh_global_settings_context
    from prefect.logging.configuration import setup_logging

    from autoopt.settings import settings

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    descriptors = [os.open(os.devnull, os.O_RDONLY), *request.output]
    for descriptor, target in zip(descriptors, (0, 1, 2), strict=True):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(request.folder)
    sys.path[0] = request.folder
    sys.argv = [ENGINE]
    os.environ.clear()
    os.environ.update(request.environment)
    tempfile.tempdir = None
    settings.cache_clear()
    refresh_global_settings_context()
    setup_logging()


def main(descriptor: int) -> None:
    """Serve until the worker ends. In a fork, execute its flow run."""
    # Its flow runs are to end in order, and it with the last of them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for module in PRELOADED:
        importlib.import_module(module)
    if len(os.listdir("/proc/self/task")) > 1:  # a fork has only one of them
        sys.exit("fork server: an import has started a thread; flow runs start as programs")
    gc.freeze()  # the forks share what is in memory now
    server = os.getpid()
    forks = Forks(socket.socket(fileno=descriptor))
    request = forks.serve()
    if request is not None:
        end_with_parent(server, signal.SIGKILL)
        forks.close()
        become(request)
        start_ahead(WARM)
        sys.modules.pop(ENGINE, None)  # else runpy warns
        runpy.run_module(ENGINE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
