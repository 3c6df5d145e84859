"""The configuration of flow runs' processes; whole workers run in `test_orchestrate_serve.py`."""

from __future__ import annotations

import sys
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun

from autoopt.orchestrate.server.worker import ForkingConfiguration

VERSION_CHECK = "PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED"


def configured(command: str | None = None, **env: str | None) -> ForkingConfiguration:
    configuration = ForkingConfiguration(command=command, env=env)
    configuration.prepare_for_flow_run(FlowRun(id=uuid4(), flow_id=uuid4()))
    return configuration


def prepared(command: str | None) -> str:
    found = configured(command).command
    assert found is not None
    return found


def test_flow_runs_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForkingConfiguration, "forks", "/the/folder")
    assert prepared(None).startswith(sys.executable)
    assert prepared(None).endswith("forked_flow_run.py /the/folder")


def test_a_command_of_the_deployment_stays() -> None:
    assert prepared("sh -c mine") == "sh -c mine"


def test_flow_runs_do_not_check_the_version_again_unless_told_to() -> None:
    assert configured().env[VERSION_CHECK] == "false"
    assert configured(**{VERSION_CHECK: "true"}).env[VERSION_CHECK] == "true"
