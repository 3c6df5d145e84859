"""Runs over several targets with Prefect, through a kill, and with a target behind a work pool."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from builders import mlp, write
from children import HANG_SECONDS
from fsspec.core import url_to_fs
from object_store import bucket
from ports import free_port
from prefect_server import wait_until_shown
from remote_pool import POOL, server, worker

from autoopt.api import execute, resume
from autoopt.engine.inputs.request import RunRequest
from autoopt.store import open_store

pytestmark = pytest.mark.service
SHORT = {"seconds": 0.2, "replicas": 2, "target_width": 1.0, "rounds": 2}
DAG: dict[str, Any] = {
    "name": "t",
    "targets": [{"name": "one", "threads": 1}, {"name": "two", "threads": 2}],
    "passes": {"tidy": "simplify", "quant": {"pass": "dynamic_quantization", "params": {"per_channel": "search"}}},
    "chains": [["tidy", "quant"], ["tidy"]],
    "objectives": [{"metric": "size"}],  # a race for speed goes on in the next run if it was not decided
    "constraints": [],
    "measurement": SHORT,
}
CHILD = """
import json, sys
from pathlib import Path
from autoopt.api import execute
from autoopt.engine.inputs.request import RunRequest
result = execute(RunRequest(dag=json.loads(sys.argv[1]), model=sys.argv[2], home=Path(sys.argv[3])))
found = {t.name: t.result.best.metrics for t in result.targets}
print(json.dumps({"targets": found, "size": result.best.ratios["size"].value}))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(mlp(width=64), tmp_path / "mlp")


def test_each_target_is_a_flow_run(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(tmp_path, free_port()) as env:
        monkeypatch.setenv("PREFECT_API_URL", env["PREFECT_API_URL"])
        request = RunRequest(dag=DAG, model=model, home=tmp_path / "home")
        result = execute(replace(request, out=tmp_path / "out"), "prefect")
        assert [t.result.trial_counts["ok"] for t in result.targets] == [3, 3]
        again = execute(request, "prefect")
        assert again.reused
        assert again.run == result.run
        wait_until_shown(tmp_path / "home")
        named = {"flow_runs": {"name": {"like_": "mlp · t"}}}
        rows = httpx.post(f"{env['PREFECT_API_URL']}/flow_runs/count", json=named, timeout=30).json()
        assert rows == 2


def test_a_killed_run_goes_on_where_it_was(model: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    program = [sys.executable, "-c", CHILD, json.dumps(DAG), str(model), str(home)]
    killed = subprocess.run(
        program, env={**os.environ, "AUTOOPT_FAULT": "between ask and tell:5"}, timeout=HANG_SECONDS
    )
    assert killed.returncode == -signal.SIGKILL, "in the search of the second target"
    with open_store(None, home) as store:
        before = {run.id for run in store.runs.all(status="finished")}
    (result,) = resume("latest", home=home)
    assert len(before) == 1, "the first target was done"
    assert result.targets[0].result.run in before
    assert result.targets[0].result.reused
    assert all(t.result.best is not None for t in result.targets)


def test_a_target_behind_a_work_pool(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two machines have nothing in common but the server and a bucket. The run has a process of its own: Prefect
    keeps to the server that a process began with."""
    home = tmp_path / "home"
    far = {"name": "far", "host": {"type": "work_pool", "work_pool": POOL}}
    dag = {**DAG, "targets": [{"name": "here"}, far], "chains": [["tidy"]]}
    dag["passes"] = {"tidy": {"pass": "dynamic_quantization", "host": far["host"]}}
    # One of the few items may change its class: CPUs without VNNI get weights of 7 bits.
    dag["constraints"] = [{"metric": "latency_p50", "max": 10_000.0}, {"metric": "agreement", "min": 0.5}]
    with bucket(monkeypatch) as url, server(tmp_path, free_port()) as env:
        shared = {"AUTOOPT_ARTIFACTS_URL": url}
        asks = {**os.environ, **shared, "PREFECT_API_URL": env["PREFECT_API_URL"], "PREFECT_HOME": env["PREFECT_HOME"]}
        with worker(tmp_path, {**env, **shared}):
            words = [sys.executable, "-c", CHILD, json.dumps(dag), str(model), str(home)]
            done = subprocess.run(words, env=asks, capture_output=True, text=True, timeout=HANG_SECONDS)
        assert done.returncode == 0, done.stderr[-3000:]
        left = url_to_fs(url)[0].glob(f"{url}/exchange/**")
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found["targets"]) == ["here", "far"]
    assert found["size"] < 1
    assert "latency_p50" in found["targets"]["far"]
    assert not left, "nothing is left behind"
    assert not (home / "exchange").exists()
