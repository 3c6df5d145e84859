"""Settings that make flow runs send heartbeats, and the states that end one."""

from __future__ import annotations

import pytest
from prefect.client.schemas.objects import TERMINAL_STATES
from prefect.states import AwaitingRetry, Crashed, Running, State

from autoopt.orchestrate.server.heartbeats import (
    CONTINUED,
    FINAL_STATES,
    MAX_CONTINUATIONS,
    SILENT_SECONDS,
    absence_trigger,
    continued_too_often,
    environment,
)


def test_final_states_are_those_of_prefect() -> None:
    assert set(FINAL_STATES) == {state.value for state in TERMINAL_STATES}


def test_flow_runs_send_several_heartbeats_before_they_count_as_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", raising=False)
    assert 2 * int(environment()["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]) < SILENT_SECONDS


def test_what_the_user_has_set_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "3")
    assert environment()["PREFECT_CLIENT_MAX_RETRIES"] == "3"


def test_a_sweep_that_dies_again_and_again_is_not_continued_for_ever() -> None:
    continuation: list[State] = [Running(), Crashed(), AwaitingRetry(message=CONTINUED)]
    assert not continued_too_often([Running()])
    assert not continued_too_often(continuation * (MAX_CONTINUATIONS - 1))
    assert continued_too_often(continuation * MAX_CONTINUATIONS)
    by_hand = [*continuation * MAX_CONTINUATIONS, Crashed(), AwaitingRetry()]
    assert not continued_too_often(by_hand), "Retry begins anew"


def test_a_trigger_waits_for_events_of_each_flow_run_by_itself() -> None:
    trigger = absence_trigger("Crashed", ["Running"], 30, {"prefect.resource.role": "flow"})
    assert (trigger.after, trigger.expect) == ({"prefect.flow-run.Crashed"}, {"prefect.flow-run.Running"})
    assert (trigger.posture.value, trigger.within.total_seconds()) == ("Proactive", 30)
    assert trigger.for_each == {"prefect.resource.id"}
