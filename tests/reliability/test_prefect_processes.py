"""Runs as flow runs: what listens, what a kill leaves behind, and what the next `resume` makes of it."""

from __future__ import annotations

import json
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from children import HANG_SECONDS
from commands import Command, Prefect, fill, finish, left, start
from prefect_server import end_personal_server, prepared, wait_until_shown
from watching import all_gone

from autoopt.store import open_store

pytestmark = pytest.mark.service

RUN = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "prefect", "--json")
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


def states(server: str, what: str) -> dict[str, str]:
    found = httpx.post(f"{server}/{what}/filter", json={"limit": 200}, timeout=HANG_SECONDS)
    rows: list[dict[str, Any]] = found.raise_for_status().json()
    return {row["id"]: row["state_type"] for row in rows}


def test_a_killed_run_is_shown_as_crashed_and_its_resume_anew(
    prefect_server: Prefect, command: Command, tmp_path: Path
) -> None:
    fill(tmp_path)
    server = prefect_server.url
    killed = start(tmp_path, *RUN, PREFECT_API_URL=server, AUTOOPT_FAULT="between ask and tell:3")
    killed.communicate(timeout=HANG_SECONDS)
    assert killed.returncode == -signal.SIGKILL
    wait_until_shown(tmp_path / "home")
    before = states(server, "flow_runs")
    assert set(before.values()) == {"CRASHED"}
    (document,) = finish(start(tmp_path, "resume", "--json", PREFECT_API_URL=server))
    assert document["trials"]["total"] == 4
    wait_until_shown(tmp_path / "home")
    after = states(server, "flow_runs")
    assert {state for flow_run, state in after.items() if flow_run not in before} == {"COMPLETED"}
    assert before.items() <= after.items()
    with open_store(None, tmp_path / "home") as store:
        assert [run.status for run in store.runs.all()] == ["finished"]
    assert command(fill(tmp_path / "quiet"), *RUN[:4], "--engine", "inline").code == 0
    assert left(tmp_path / "home") == left(tmp_path / "quiet" / "home")  # whatever carried it out


def status_without_password(port: int) -> int:
    return httpx.post(f"http://127.0.0.1:{port}/api/flow_runs/filter", json={}, timeout=HANG_SECONDS).status_code


def test_all_that_listens_is_on_the_loopback_and_asks_for_a_password(tmp_path: Path) -> None:
    """Without a server there is one of the user's own, which outlives the run until it is idle."""
    prefect = prepared(tmp_path / "prefect")
    process = start(fill(tmp_path), *RUN, AUTOOPT_FAULT="between ask and tell:3")
    family: dict[int, psutil.Process] = {}
    while process.poll() is None:
        with suppress(psutil.Error):
            for member in psutil.Process(process.pid).children(recursive=True):
                family.setdefault(member.pid, member)
        time.sleep(0.05)  # looks often, so that no process is missed
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    wait_until_shown(tmp_path / "home")
    try:
        note = json.loads((prefect / "autoopt-server.json").read_text())
        server = int(note["owner"].split("/")[3])
        listening = [
            c.laddr for c in psutil.Process(server).net_connections(kind="inet") if c.status == psutil.CONN_LISTEN
        ]
        assert {address.ip for address in listening} == {"127.0.0.1"}
        assert {status_without_password(address.port) for address in listening} == {httpx.codes.UNAUTHORIZED}
    finally:
        end_personal_server(prefect)
    assert len(family) >= 3  # two workers with their keepers, the process that shows the run
    assert all_gone(list(family)), [p.cmdline() for p in family.values() if p.is_running()]
