"""Servers that tests share."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from commands import Prefect, environment


@pytest.fixture(scope="module")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefect]:
    """A Prefect server of these tests' own."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    env = environment(folder, PREFECT_SERVER_ANALYTICS_ENABLED="false")
    with open(folder / "said.txt", "w") as said:
        process = subprocess.Popen(command, env=env, stdout=said, stderr=said)
    url = f"http://127.0.0.1:{port}/api"
    try:
        for _ in range(300):
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/health").is_success:
                    break
            with suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"the server ended with {process.wait(0.2)}")
        yield Prefect(url, folder)
    finally:
        process.terminate()
        process.wait(20)
