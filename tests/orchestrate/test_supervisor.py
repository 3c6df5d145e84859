"""The processes of `autoopt serve`: what is refused before anything starts, and what ends at exit."""

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

from autoopt.errors import InputError, SystemFailure
from autoopt.orchestrate.server.access import PASSWORD_FILE
from autoopt.orchestrate.server.connection import DEFAULTS, NOTE, write_note
from autoopt.orchestrate.server.supervisor import END_SIGNALS, GENERATIONS, Supervisor, rotate

WRITER = """
import sys
for line in sys.stdin:
    print(line.strip() * 100, flush=True)
    print("done", file=sys.stderr, flush=True)
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that a supervisor sets are removed afterwards."""
    passwords = ("PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING")
    for name in ("PREFECT_API_URL", *passwords, "AUTOOPT_HOME", "PREFECT_HOME", *DEFAULTS):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path, say=lambda text: None) as opened:
        yield opened


def test_signals_interrupt_inside_and_are_restored_afterwards(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in END_SIGNALS]
    for number in END_SIGNALS:
        with pytest.raises(KeyboardInterrupt), Supervisor(tmp_path):
            signal.raise_signal(number)
    assert [signal.getsignal(number) for number in END_SIGNALS] == before


def test_processes_inherit_the_home(supervisor: Supervisor, tmp_path: Path) -> None:
    assert os.environ["AUTOOPT_HOME"] == str(tmp_path)
    assert os.environ["PREFECT_HOME"] == str(tmp_path / "prefect")
    assert supervisor.log("server") == tmp_path / "logs" / "server.log"
    assert supervisor.log("server").parent.is_dir()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_an_address_that_others_reach_needs_a_password(tmp_path: Path, host: str) -> None:
    reason = "the server needs a password; leave out --no-password"
    with pytest.raises(InputError, match=reason), Supervisor(tmp_path, host, password=False) as supervisor:
        supervisor.server()
    assert not (tmp_path / PASSWORD_FILE).exists()


def test_a_taken_port_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        reason = f"cannot listen on port {port} .*; choose another port"
        with pytest.raises(InputError, match=reason), Supervisor(tmp_path, port=port) as supervisor:
            supervisor.server()
    assert not (tmp_path / NOTE).exists()
    assert set(psutil.Process().children()) <= before


def test_an_external_server_has_to_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://user:canary@127.0.0.1:9/api")
    with pytest.raises(SystemFailure) as caught, Supervisor(tmp_path) as supervisor:
        supervisor.server()
    assert str(caught.value) == "http://127.0.0.1:9/api: the Prefect server does not answer"
    assert "canary" not in str(caught.value)


def test_the_note_of_this_process_is_removed_at_exit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = psutil.Process().cmdline()
    monkeypatch.setattr(psutil.Process, "cmdline", lambda process: [*command, "serve"])
    with Supervisor(tmp_path):
        write_note(tmp_path, "http://127.0.0.1:4200/api")
    assert not (tmp_path / NOTE).exists()


def test_the_note_of_another_process_stays(tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text("{}")
    with Supervisor(tmp_path):
        pass
    assert (tmp_path / NOTE).exists()


def test_a_process_goes_on_writing_to_a_rotated_log(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with log.open("ab") as stream:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=stream, stderr=subprocess.PIPE, text=True
        )
    assert writer.stdin is not None
    assert writer.stderr is not None
    with writer:
        for letter in "abcdef":
            writer.stdin.write(f"{letter}\n")
            writer.stdin.flush()
            assert writer.stderr.readline() == "done\n"
            assert rotate(log, largest=99)
            assert not rotate(log, largest=99), "it is empty now"
        writer.stdin.close()
    generations = sorted(path.name for path in tmp_path.iterdir())
    assert generations == ["server.log", *(f"server.log.{number}" for number in range(1, GENERATIONS + 1))]
    contents = [(tmp_path / name).read_bytes()[:1] for name in generations]
    assert contents == [b"", b"f", b"e", b"d"]
    assert (tmp_path / "server.log.1").read_bytes() == b"f" * 100 + b"\n", "no zero bytes in front"


def test_a_log_that_does_not_exist_is_no_error(tmp_path: Path) -> None:
    assert not rotate(tmp_path / "absent.log")
