"""The data root and the keys that a Prefect server keeps for its workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from children import HANG_SECONDS
from prefect_server import free_port, prepared, running_server
from serving import environment

KEEP = """\
from prefect.blocks.system import Secret
from prefect.variables import Variable

Variable.set("autoopt_data_root", "s3://bucket/data")
keys = {"AWS_ACCESS_KEY_ID": "kept", "AWS_DEFAULT_REGION": "kept", "LD_PRELOAD": "evil.so", "AUTOOPT_SCRIPTS": "/"}
Secret(value=keys).save("autoopt-keys")
"""
USE = """\
import json
import os

from autoopt.orchestrate.flow_runs.server_settings import use_server_settings
from autoopt.settings import settings

use_server_settings()
names = ("AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION", "LD_PRELOAD", "AUTOOPT_SCRIPTS")
print(json.dumps([settings().data_root, *(os.environ.get(name) for name in names)]))
"""


@pytest.mark.service
def test_a_worker_takes_what_its_machine_does_not_set_and_nothing_that_runs_code(tmp_path: Path) -> None:
    def run(script: str, **env: str) -> str:
        command = [sys.executable, "-c", script]
        given = {**environment(tmp_path), "AUTOOPT_SCRIPTS": "", "AWS_DEFAULT_REGION": "own", **env}
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=HANG_SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().rpartition("\n")[2]

    env = environment(tmp_path, PREFECT_HOME=str(prepared(tmp_path / "prefect")))
    with running_server(env, free_port(), tmp_path / "log") as url:
        assert json.loads(run(USE, PREFECT_API_URL=url)) == [None, None, "own", None, ""]
        run(KEEP, PREFECT_API_URL=url)
        assert json.loads(run(USE, PREFECT_API_URL=url)) == ["s3://bucket/data", "kept", "own", None, ""]
    assert json.loads(run(USE)) == [None, None, "own", None, ""], "without a server"
