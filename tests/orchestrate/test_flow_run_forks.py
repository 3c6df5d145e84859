"""A fork server with the small processes that stand for flow runs; their engine asks a server that never answers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from children import HANG_SECONDS, start_process
from serving import eventually

from autoopt.orchestrate.server import forked_flow_run
from autoopt.orchestrate.server.flow_run_forks import fork_server

UNKNOWN = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def forks() -> Iterator[str]:
    with fork_server() as folder:
        yield folder


def command(forks: str) -> list[str]:
    return [sys.executable, "-I", "-S", forked_flow_run.__file__, forks]


def environment(flow_run: str, port: int = 9) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "AUTOOPT_"))}
    return {**kept, "PREFECT__FLOW_RUN_ID": flow_run, "PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}


def server_of(forks: str) -> psutil.Process:
    [server] = [child for child in psutil.Process().children() if "flow_run_forks" in " ".join(child.cmdline())]
    return server


def test_a_fork_has_the_environment_the_folder_and_the_output_of_the_small_process(forks: str, tmp_path: Path) -> None:
    ended = subprocess.run(command(forks), env=environment("none"), cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "Invalid flow run id" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_flow_run_ends_with_its_small_process(forks: str, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(HANG_SECONDS)
        process = start_process(command(forks), env=environment(UNKNOWN, silent.getsockname()[1]))
        connection, _ = silent.accept()
        with connection:
            [fork] = server_of(forks).children()
            process.send_signal(number)
            assert process.wait(HANG_SECONDS) == -number
            eventually(lambda: not fork.is_running())


def test_a_small_process_reports_that_its_flow_run_was_killed(forks: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(HANG_SECONDS)
        process = start_process(command(forks), env=environment(UNKNOWN, silent.getsockname()[1]))
        with silent.accept()[0]:
            [fork] = server_of(forks).children()
            beside = subprocess.run(command(forks), env=environment("none"), capture_output=True)
            assert beside.returncode == 1
            assert fork.is_running(), "another flow run has ended"
            fork.kill()
            assert process.wait(HANG_SECONDS) == -signal.SIGKILL


def test_only_its_user_can_reach_the_server(forks: str) -> None:
    assert Path(forks).stat().st_mode & 0o077 == 0


def test_the_server_ends_after_the_process_that_has_started_it() -> None:
    before = set(psutil.Process().children())
    with fork_server() as folder:
        [server] = set(psutil.Process().children()) - before
    assert server.wait(HANG_SECONDS) == 0
    assert not Path(folder).exists()
