"""`python -m autoopt` is the command line, and signals end it from the start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from children import HANG_SECONDS


def test_the_module_runs_the_command_line_and_returns_its_exit_code() -> None:
    version = run("--version")
    assert version.returncode == 0, version.stderr
    assert "0.2" in version.stdout
    wrong = run("no-such-command")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1


def test_a_reader_that_ends_early_is_no_result_that_falls_short() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "autoopt", "passes", "list", "--json"]
    with os.fdopen(writing, "wb") as stream:
        done = subprocess.run(command, stdout=stream, stderr=subprocess.PIPE, timeout=HANG_SECONDS, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


CODE_FROM_TEXT = 'exec("signal.raise_signal(number)")'
CLASS = """
class Named:
    def __set_name__(self, owner, name):
        signal.raise_signal(number)

class Owner:
    attribute = Named()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "code", ["signal.raise_signal(number)", CODE_FROM_TEXT, CLASS], ids=["import", "code from text", "class"]
)
def test_a_signal_that_arrives_while_the_parser_is_imported_ends_the_command_quietly(
    number: signal.Signals, code: str, tmp_path: Path
) -> None:
    (tmp_path / "typer.py").write_text(f"import signal\n\nnumber = {int(number)}\n{code}\n")
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    done = run("runs", PYTHONPATH=os.pathsep.join(filter(None, paths)))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autoopt", *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env={**os.environ, **variables},
    )
