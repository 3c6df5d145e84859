"""Automations on a real server: flow runs that fall silent, and messages about nights that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from children import HANG_SECONDS
from ports import free_port
from prefect_server import prepared, running_server
from receiving import receiver
from serving import eventually

pytestmark = pytest.mark.service

CRASH = """
from autoopt.orchestrate import automations
automations.SILENT_SECONDS = 10  # the shortest time that Prefect takes
automations.ensure_crash_automation()
automations.ensure_crash_automation()
"""
NOTIFY = """
import sys
from uuid import UUID
from autoopt.orchestrate.automations import notify
from autoopt.spec.zoo import addresses_of
notify(UUID(sys.argv[1]), "night", addresses_of(sys.argv[2:]))
"""
TAG = {"prefect.resource.role": "tag", "prefect.resource.id": "prefect.tag.autoopt"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("server")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    home = prepared(folder / "prefect")
    env = {**inherited, "PREFECT_HOME": str(home), "PREFECT_UI_URL": "http://pages.example"}
    with (
        running_server(env, free_port(), folder / "server.log") as url,
        httpx.Client(base_url=url, timeout=HANG_SECONDS) as client,
    ):
        yield client


def ask(api: httpx.Client, path: str, body: Any) -> Any:
    """The answer to a request, which is repeated while the server's database is busy, as Prefect's own clients do."""

    def answer() -> httpx.Response | None:
        made = api.post(path, json=body)
        return None if made.status_code == httpx.codes.SERVICE_UNAVAILABLE else made

    found: httpx.Response = eventually(answer)
    return found.raise_for_status().json() if found.content else None


def python(api: httpx.Client, program: str, *arguments: str) -> None:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    env = {**inherited, "PREFECT_API_URL": str(api.base_url).rstrip("/")}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr


def running(api: httpx.Client, flow: str, **more: Any) -> str:
    """A flow run of that flow in state Running."""
    identity = ask(api, "/flows/", {"name": flow})["id"]
    body = {"flow_id": identity, "state": {"type": "RUNNING"}, **more}
    return str(ask(api, "/flow_runs/", body)["id"])


def heartbeat(api: httpx.Client, flow_run: str, flow: str, *related: dict[str, str]) -> None:
    """The event that the process of a flow run sends."""
    of = {
        "prefect.resource.role": "flow",
        "prefect.resource.id": f"prefect.flow.{uuid4()}",
        "prefect.resource.name": flow,
    }
    resource = {"prefect.resource.id": f"prefect.flow-run.{flow_run}"}
    event = {"event": "prefect.flow-run.heartbeat", "resource": resource, "related": [of, *related]}
    event |= {"id": str(uuid4()), "occurred": datetime.now(UTC).isoformat(), "payload": {}}
    ask(api, "/events", [event])


def state(api: httpx.Client, flow_run: str) -> str:
    return str(api.get(f"/flow_runs/{flow_run}").raise_for_status().json()["state_type"])


def test_only_flow_runs_of_autoopt_that_fall_silent_are_crashed(api: httpx.Client) -> None:
    python(api, CRASH)
    found = ask(api, "/automations/filter", {})
    assert [one["name"] for one in found] == ["autoopt: crash flow runs without a heartbeat"]
    foreign, namesake, ours = running(api, "etl"), running(api, "optimize_model"), running(api, "optimize_model")
    heartbeat(api, foreign, "etl", TAG)
    heartbeat(api, namesake, "optimize_model")
    heartbeat(api, ours, "optimize_model", TAG)
    eventually(lambda: state(api, ours) == "CRASHED")
    assert (state(api, foreign), state(api, namesake)) == ("RUNNING", "RUNNING")


def test_a_night_that_fails_is_told(api: httpx.Client, tmp_path: Path) -> None:
    flow = ask(api, "/flows/", {"name": "nightly_sweep"})["id"]
    made = ask(api, "/deployments/", {"name": "here", "flow_id": flow})["id"]
    with receiver() as (url, bodies):
        python(api, NOTIFY, made, f"{url}canary", "https://elsewhere.example.com/x")
        python(api, NOTIFY, made, f"{url}canary", f"json://{url.partition('//')[2]}canary")  # in place of those
        run = running(api, "nightly_sweep", deployment_id=made, name="zoo night")
        other = running(api, "nightly_sweep", name="another deployment")
        for one, message in ((other, "not ours"), (run, "1 of 2 models regressed: wide.")):
            failed = {"type": "FAILED", "message": message}
            ask(api, f"/flow_runs/{one}/set_state", {"state": failed, "force": True})
        eventually(lambda: len(bodies) == 2)
        [text] = [one["text"] for one in map(json.loads, bodies) if tuple(one) == ("text",)]
        [apprise] = [one for one in map(json.loads, bodies) if "title" in one]
    assert text.startswith("zoo night: Failed\n1 of 2 models regressed: wide.\n")
    assert text.endswith(f"\nhttp://pages.example/runs/flow-run/{run}")
    assert apprise["title"] == "zoo night: Failed"
    found = [one for one in ask(api, "/automations/filter", {}) if "night" in one["name"]]
    assert [len(one["actions"]) for one in found] == [2]
    assert "canary" not in json.dumps(ask(api, "/block_documents/filter", {"include_secrets": False}))
    python(api, NOTIFY, made)
    assert not [one for one in ask(api, "/automations/filter", {}) if "night" in one["name"]]
