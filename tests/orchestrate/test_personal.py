"""The server of a user: how it is found, and when it ends. `test_orchestrate_flows.py` runs it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from children import HANG_SECONDS
from prefect_server import prepared

from autoopt.json_codec import to_json
from autoopt.orchestrate.server.connection import DEFAULTS, SERVER
from autoopt.orchestrate.server.personal import LEAN, NOTE, PersonalServer, connect, running_server
from autoopt.owner import this_process


@pytest.fixture
def prefect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PREFECT_HOME, without a server in the environment."""
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", "")
    return tmp_path


def note(folder: Path, owner: str) -> PersonalServer:
    server = PersonalServer("http://127.0.0.1:4200/api", owner)
    (folder / NOTE).write_text(json.dumps(to_json(server)))
    return server


def test_a_server_runs_if_its_process_does(prefect: Path) -> None:
    assert running_server() is None
    server = note(prefect, this_process())
    assert running_server() == server
    assert server.pages == "http://127.0.0.1:4200"
    parts = this_process().split("/")
    note(prefect, "/".join([*parts[:3], str(2**22 + 1), *parts[4:]]))
    assert running_server() is None
    (prefect / NOTE).write_text("{")
    assert running_server() is None


def test_the_running_server_is_used_with_its_password(prefect: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "")
    (prefect / "prefect-password").write_text("autoopt:secret\n")
    server = note(prefect, this_process())
    assert connect(prefect / "home") == server.api
    assert (os.environ["PREFECT_API_URL"], os.environ["PREFECT_API_AUTH_STRING"]) == (server.api, "autoopt:secret")


def test_a_server_that_the_environment_names_goes_first(prefect: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere/api")
    note(prefect, this_process())
    assert connect(prefect / "home") == "http://elsewhere/api"


@pytest.mark.service
def test_an_idle_server_ends(tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env = {**inherited, **DEFAULTS, **SERVER, **LEAN, "PREFECT_HOME": str(prepared(tmp_path))}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.fileno()
        # At its low priority, a busy machine leaves it less than a hundredth of a core, and it needs minutes to start.
        program = "from autoopt.orchestrate.server import personal; personal.NICENESS = 0; personal.main()"
        command = [sys.executable, "-c", program, str(number), "0.1"]
        done = subprocess.run(command, env=env, pass_fds=[number], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / NOTE).exists()
