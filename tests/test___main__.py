"""`python -m autoopt` is the command line."""

from __future__ import annotations

import subprocess
import sys

from children import HANG_SECONDS


def test_the_module_runs_the_command_line_and_returns_its_exit_code() -> None:
    version = run("--version")
    assert version.returncode == 0, version.stderr
    assert "0.1" in version.stdout
    wrong = run("no-such-command")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autoopt", *arguments], capture_output=True, text=True, timeout=HANG_SECONDS
    )
