"""The process of a flow run as its worker sees it: a small program that has the flow run forked, and ends like it.

It imports only the standard library, so that it starts in milliseconds. `flow_run_forks` is the other side.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from types import FrameType

SOCKET = "socket"
"""Name of the fork server's socket in its folder."""
HEADER_BYTES = 12
ENGINE = "prefect.engine"
"""The module that executes the flow run which the environment names."""


def main(folder: str) -> None:
    """Execute the flow run of this environment in a fork; as a program of its own if there is no fork server."""
    os.setsid()  # signals to the worker's process group are not for its flow runs
    request = json.dumps({"environment": dict(os.environ), "folder": os.getcwd()}).encode()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connect(connection, folder)
        socket.send_fds(connection, [str(len(request)).zfill(HEADER_BYTES).encode()], [1, 2])
        connection.sendall(request)
    except OSError:
        _become_program()
    answers = connection.makefile()
    process = int(answers.readline() or "0")
    if not process:
        _become_program()

    def hand_on(number: int, frame: FrameType | None) -> None:
        os.kill(process, number)

    signal.signal(signal.SIGTERM, hand_on)
    code = int(answers.readline() or "1")
    if code < 0:  # killed by a signal
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def connect(connection: socket.socket, folder: str) -> None:
    """Connect to the server; its path may be longer than an address can be.

    Raises:
        OSError: there is no server.
    """
    before = os.getcwd()
    os.chdir(folder)
    try:
        connection.connect(SOCKET)
    finally:
        os.chdir(before)


def _become_program() -> None:
    os.execv(sys.executable, [sys.executable, "-m", ENGINE])


if __name__ == "__main__":
    main(sys.argv[1])
