"""Runs as flow runs: what listens, what a kill leaves behind, and what the next `resume` makes of it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from children import HANG_SECONDS
from commands import Prefect, fill, finish, left, start
from prefect_server import prepared
from watching import all_gone

from autoopt.store import open_store

pytestmark = pytest.mark.service

RUN = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "prefect", "--json")
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


def states(server: str, what: str) -> dict[str, str]:
    found = httpx.post(f"{server}/{what}/filter", json={"limit": 200}, timeout=30)
    rows: list[dict[str, Any]] = found.raise_for_status().json()
    return {row["id"]: row["state_type"] for row in rows}


def test_what_a_killed_run_left_running_is_closed_by_resume(prefect_server: Prefect, tmp_path: Path) -> None:
    fill(tmp_path)
    server = prefect_server.url
    killed = start(tmp_path, *RUN, PREFECT_API_URL=server, AUTOOPT_FAULT="between ask and tell:3")
    killed.communicate(timeout=HANG_SECONDS)
    assert killed.returncode == -signal.SIGKILL
    before = states(server, "flow_runs")
    running = {flow_run for flow_run, state in before.items() if state not in FINAL}
    assert running
    (document,) = finish(start(tmp_path, "resume", "--json", PREFECT_API_URL=server))
    assert document["trials"]["total"] == 4
    after = states(server, "flow_runs")
    assert {after[flow_run] for flow_run in running} == {"CRASHED"}
    assert set(after.values()) <= FINAL
    assert set(states(server, "task_runs").values()) <= FINAL
    with open_store(None, tmp_path / "home") as store:
        assert [run.status for run in store.runs.all()] == ["finished"]
    finish(start(fill(tmp_path / "quiet"), *RUN[:4], "--engine", "inline", "--json"))
    assert left(tmp_path / "home") == left(tmp_path / "quiet" / "home")  # whatever carried it out


def status_without_password(port: int) -> int:
    return httpx.post(f"http://127.0.0.1:{port}/api/flow_runs/filter", json={}, timeout=30).status_code


def test_all_that_listens_is_on_the_loopback_asks_for_a_password_and_ends_with_the_run(tmp_path: Path) -> None:
    """Without a server there is an ephemeral one: a process of ours that must not outlive a kill either."""
    prepared(tmp_path / "prefect")
    process = start(fill(tmp_path), *RUN, AUTOOPT_FAULT="between ask and tell:3")
    listening: set[str] = set()
    answers: set[int] = set()
    family: dict[int, psutil.Process] = {}
    while process.poll() is None:
        with suppress(psutil.Error, httpx.TransportError):  # looks again
            for member in (psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)):
                family.setdefault(member.pid, member)
                found = member.net_connections(kind="inet")
                listeners = [c.laddr for c in found if c.status == psutil.CONN_LISTEN]
                listening |= {address.ip for address in listeners}
                answers |= {status_without_password(address.port) for address in listeners if not answers}
        time.sleep(0.05)  # looks often, so that nothing listens unseen for long
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert listening
    assert listening <= {"127.0.0.1", "::1"}
    assert answers == {httpx.codes.UNAUTHORIZED}
    del family[process.pid]
    assert len(family) >= 3  # two workers with their keepers, a server
    left_alive = [p.pid for p in family.values() if p.is_running() and p.pid != os.getpid()]
    assert all_gone(left_alive), [p.cmdline() for p in family.values() if p.is_running()]
