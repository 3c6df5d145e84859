"""Machines for tests: network namespaces with addresses and host names of their own on one computer."""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Machine:
    """`name` is its host name. It reaches `gateway`, which is this computer, and nothing else."""

    name: str
    namespace: str
    gateway: str
    address: str

    def command(self, *command: str) -> list[str]:
        """`command`, to be run there."""
        named = ["unshare", "--uts", "sh", "-c", f'hostname {self.name}; exec "$@"', "sh"]
        return ["ip", "netns", "exec", self.namespace, *named, *command]


@contextmanager
def machines(*names: str) -> Iterator[list[Machine]]:
    """Machines of these names. Skips where they cannot be made."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("network namespaces need root, iproute2 and util-linux")
    with ExitStack() as stack:
        yield [stack.enter_context(_machine(name)) for name in names]


@contextmanager
def _machine(name: str) -> Iterator[Machine]:
    tag = uuid.uuid4().hex[:6]
    third, fourth = int(tag[:2], 16), int(tag[2:4], 16) // 4 * 4  # in the range for tests of network devices
    base = f"198.18.{third}."
    machine = Machine(name, f"autoopt-{tag}", f"{base}{fourth + 1}", f"{base}{fourth + 2}")
    if subprocess.run(["ip", "netns", "add", machine.namespace], capture_output=True).returncode != 0:
        pytest.skip("no network namespace can be made here")
    outer, inner = f"ao{tag}a", f"ao{tag}b"
    try:
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", machine.namespace)
        _ip("address", "add", f"{machine.gateway}/30", "dev", outer)
        _ip("link", "set", outer, "up")
        _ip("-n", machine.namespace, "address", "add", f"{machine.address}/30", "dev", inner)
        _ip("-n", machine.namespace, "link", "set", inner, "up")
        _ip("-n", machine.namespace, "link", "set", "lo", "up")
        yield machine
    finally:
        subprocess.run(["ip", "netns", "delete", machine.namespace], capture_output=True)
        subprocess.run(["ip", "link", "delete", outer], capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def reachable(machine: Machine, port: int) -> Iterator[None]:
    """A port of this computer's loopback, reachable for the machine under the same number at its gateway."""

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as there:
                back = threading.Thread(target=_copy, args=(there, self.request), daemon=True)
                back.start()
                _copy(self.request, there)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True
        request_queue_size = 64

    with Server((machine.gateway, port), Forward) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            server.block_on_close = False


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
