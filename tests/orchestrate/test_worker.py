"""The configuration of flow runs' processes; whole workers run in `test_orchestrate_serve.py`."""

from __future__ import annotations

import sys
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun

from autoopt.orchestrate.server.worker import ForkingConfiguration


def prepared(command: str | None) -> str:
    configuration = ForkingConfiguration(command=command)
    configuration.prepare_for_flow_run(FlowRun(id=uuid4(), flow_id=uuid4()))
    assert configuration.command is not None
    return configuration.command


def test_flow_runs_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForkingConfiguration, "forks", "/the/folder")
    assert prepared(None).startswith(sys.executable)
    assert prepared(None).endswith("forked_flow_run.py /the/folder")


def test_a_command_of_the_deployment_stays() -> None:
    assert prepared("sh -c mine") == "sh -c mine"
