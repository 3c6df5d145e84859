"""Settings that make flow runs send heartbeats, and the states that end one."""

from __future__ import annotations

import pytest
from prefect.client.schemas.objects import TERMINAL_STATES

from autoopt.orchestrate.server.heartbeats import FINAL_STATES, SILENT_SECONDS, environment


def test_final_states_are_those_of_prefect() -> None:
    assert set(FINAL_STATES) == {state.value for state in TERMINAL_STATES}


def test_flow_runs_send_several_heartbeats_before_they_count_as_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", raising=False)
    assert 2 * int(environment()["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]) < SILENT_SECONDS


def test_what_the_user_has_set_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "3")
    assert environment()["PREFECT_CLIENT_MAX_RETRIES"] == "3"
