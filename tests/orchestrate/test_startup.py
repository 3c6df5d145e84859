"""Prefect's start-up in the background, in processes of its own: Prefect reads its settings when it is imported."""

from __future__ import annotations

import os
import subprocess
import sys

from children import HANG_SECONDS

PROGRAM = """
import os
from autoopt.errors import SystemFailure
from autoopt.orchestrate.server.startup import PrefectStart
start = PrefectStart()
assert os.environ["PREFECT_CLI_PROMPT"] == "false"
try:
    start.wait()
except SystemFailure as error:
    assert start.ready and start.shared and start.seconds > 0
    print(error)
"""


def test_a_server_that_does_not_answer_is_reported_by_wait_without_its_password() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env |= {"PREFECT_API_URL": "http://user:canary@127.0.0.1:9/api", "PREFECT_CLIENT_MAX_RETRIES": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("http://127.0.0.1:9/api: the Prefect server does not answer (")
    assert done.stdout.rstrip().endswith("start it with 'prefect server start', or run with --engine inline")
    assert "canary" not in done.stdout + done.stderr
