"""Settings that make flow runs send heartbeats, and the states that end one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from children import HANG_SECONDS
from prefect.client.schemas.objects import TERMINAL_STATES
from prefect.settings import PREFECT_CLIENT_RETRY_EXTRA_CODES, temporary_settings
from prefect.states import AwaitingRetry, Crashed, Running, State
from prefect_server import free_port, prepared, running_server
from serving import environment as environment_of

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


def test_a_server_without_its_database_is_asked_again() -> None:
    with temporary_settings({PREFECT_CLIENT_RETRY_EXTRA_CODES: environment()["PREFECT_CLIENT_RETRY_EXTRA_CODES"]}):
        assert 500 in PREFECT_CLIENT_RETRY_EXTRA_CODES.value()


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


EARLIER = """\
import json

from prefect.automations import Automation

from autoopt.orchestrate.server import heartbeats


def automation():
    return Automation.read(name=heartbeats.AUTOMATION)


heartbeats.ensure_automations()
complete = set(automation().trigger.expect)
earlier = automation()
earlier.trigger.expect -= {"prefect.flow-run.Suspended", heartbeats.SUSPENDED}
earlier.trigger.within = 300
earlier.update()
heartbeats.ensure_automations()
told = automation().trigger
print(json.dumps([heartbeats.SUSPENDED in complete, "prefect.flow-run.Suspended" in complete, told.expect == complete]))
print(told.within.total_seconds())
"""


@pytest.mark.service
def test_suspended_flow_runs_do_not_count_as_dead_with_automations_of_earlier_versions_either(tmp_path: Path) -> None:
    env = environment_of(tmp_path, PREFECT_HOME=str(prepared(tmp_path / "prefect")))
    with running_server(env, free_port(), tmp_path / "log") as url:
        given = {**env, "PREFECT_API_URL": url}
        command = [sys.executable, "-c", EARLIER]
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    said, seconds = done.stdout.splitlines()[-2:]
    assert json.loads(said) == [True, True, True]
    assert float(seconds) == 300, "what the user has changed stays"
