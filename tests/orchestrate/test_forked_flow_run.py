"""The small process of a flow run without its fork server; with one, see `test_flow_run_forks.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from test_flow_run_forks import command, environment


def test_without_a_fork_server_it_becomes_the_flow_run_itself(tmp_path: Path) -> None:
    ended = subprocess.run(command(str(tmp_path)), env=environment("none"), capture_output=True, text=True)
    assert ended.returncode == 1
    assert "Invalid flow run id" in ended.stderr


def test_it_imports_only_the_standard_library() -> None:
    program = "import sys; import autoopt.orchestrate.server.forked_flow_run as it; print(it.__file__)"
    path = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([sys.executable, "-I", "-S", "-c", f"import runpy; runpy.run_path({path!r})"], check=True)
