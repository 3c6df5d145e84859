"""Ports for the servers of tests."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Final

PORTS: Final = range(20_000, 32_000, 2)
"""Below those that the system gives to outgoing connections, which may take a port before its server listens. Every
second one, because `autoopt serve` also takes the next."""
_reserved: list[TextIOWrapper] = []
"""Locks that keep other test processes away from the ports of this one."""


def free_port() -> int:
    """A port of the loopback on which nobody listens, and which no other test process gets while this one lives."""
    folder = Path(tempfile.gettempdir(), f"autoopt-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    first = os.getpid() % len(PORTS)
    for port in (*PORTS[first:], *PORTS[:first]):
        lock = (folder / str(port)).open("w")
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for number in (port, port + 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
            _reserved.append(lock)
            return port
        lock.close()
    raise AssertionError("no port is free")
