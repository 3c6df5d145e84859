"""Flow runs stop soon after SIGINT and SIGTERM, leave nothing behind, and resume where they stopped."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from children import HANG_SECONDS
from commands import Command, Prefect, fill, start
from watching import all_gone, pids_from

from autoopt.store import open_store

pytestmark = pytest.mark.service

SCRIPT = """\
import os
import time
from pathlib import Path

from autoopt import register

HERE = Path(__file__).parent


@register("waits")
def waits(model):
    \"\"\"Says that it has begun, and does nothing until it is allowed to.\"\"\"
    if not (HERE / "go").exists():
        (HERE / "told").write_text(f"{os.getpid()} {os.getppid()}\\n")
    while not (HERE / "go").exists():
        time.sleep(0.05)
    return model
"""
DAG = """\
name: waiting
user_script: script.py
passes: {tidy: {pass: simplify}, wait: {pass: waits}}
chains: [[tidy], [wait]]
objectives: [{metric: size}]
measurement: {seconds: 0.05, replicas: 1, target_width: 2.0, rounds: 0}
"""


@pytest.mark.parametrize(("number", "group"), [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGTERM, True)])
def test_a_run_that_is_told_to_end_does_and_goes_on_later(
    number: signal.Signals, group: bool, tmp_path: Path, command: Command, prefect_server: Prefect
) -> None:
    """`group`: all processes hear of it, as from a terminal or a service manager; else the one that was started."""
    fill(tmp_path, DAG)
    (tmp_path / "script.py").write_text(SCRIPT)
    os.mkfifo(tmp_path / "told")
    run = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "prefect", "--json")
    process = start(tmp_path, *run, PREFECT_API_URL=prefect_server.url)
    workers = pids_from(tmp_path / "told")
    os.killpg(process.pid, number) if group else process.send_signal(number)
    stdout, stderr = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode in (130, -number), stderr
    assert stdout == ""
    assert all_gone(workers)
    (tmp_path / "go").touch()
    code, stdout, stderr = command(tmp_path, "resume", "latest", "--engine", "inline")
    assert code == 0, stderr
    assert "2 trials: 2 ok" in stdout
    opening = [line.partition("] ")[2] for line in stderr.splitlines()]
    assert not [line for line in stdout.splitlines() if line.removeprefix("note: ") in filter(None, opening)]
    with open_store(None, tmp_path / "home") as store:
        assert [one.status for one in store.runs.all()] == ["finished"]
