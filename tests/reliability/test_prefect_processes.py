"""Runs as flow runs: what a kill leaves behind, and what the next `resume` makes of it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from children import HANG_SECONDS
from commands import Command, Prefect, fill, finish, left, start

from autoopt.store import open_store

pytestmark = pytest.mark.service

RUN = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "prefect", "--json")


def states(server: str, what: str) -> dict[str, str]:
    found = httpx.post(f"{server}/{what}/filter", json={"limit": 200}, timeout=HANG_SECONDS)
    rows: list[dict[str, Any]] = found.raise_for_status().json()
    return {row["id"]: row["state_type"] for row in rows}


def test_the_resume_of_a_killed_run_has_flow_runs_of_its_own(
    prefect_server: Prefect, command: Command, tmp_path: Path
) -> None:
    fill(tmp_path)
    server = prefect_server.url
    killed = start(tmp_path, *RUN, PREFECT_API_URL=server, AUTOOPT_FAULT="between ask and tell:3")
    killed.communicate(timeout=HANG_SECONDS)
    assert killed.returncode == -signal.SIGKILL
    before = states(server, "flow_runs")
    assert "RUNNING" in before.values()  # until the heartbeats are missed
    (document,) = finish(start(tmp_path, "resume", "--json", PREFECT_API_URL=server))
    assert document["trials"]["total"] == 4
    after = states(server, "flow_runs")
    assert {state for flow_run, state in after.items() if flow_run not in before} == {"COMPLETED"}
    with open_store(None, tmp_path / "home") as store:
        assert [run.status for run in store.runs.all()] == ["finished"]
    assert command(fill(tmp_path / "quiet"), *RUN[:4], "--engine", "inline").code == 0
    assert left(tmp_path / "home") == left(tmp_path / "quiet" / "home")  # whatever carried it out
