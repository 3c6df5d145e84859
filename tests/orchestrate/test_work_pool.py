"""The caller's side of a work pool: refusals, and the time that a call may spend in each stage."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from prefect.client.schemas.objects import StateType

from autoopt.errors import InputError
from autoopt.orchestrate.hosts import work_pool
from autoopt.orchestrate.hosts.work_pool import PrefectHost, _Stage, _StageClock, unanswered
from autoopt.outcome import Outcome
from autoopt.spec.targets import HostSpec


@pytest.mark.parametrize(
    ("spec", "pool"),
    [
        (HostSpec(type="work_pool", work_pool="far"), "far"),
        (HostSpec(type="docker", image="mine:1"), "autoopt-docker"),
    ],
)
def test_a_host_needs_a_permanent_server(
    spec: HostSpec, pool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(InputError, match=f"work pool {pool} needs a permanent Prefect server"):
        PrefectHost(spec, tmp_path)


@pytest.mark.parametrize(("stage", "limit"), [(_Stage.SCHEDULED, "START_SECONDS"), (_Stage.WAITING, "WAIT_SECONDS")])
def test_each_stage_has_its_limit(stage: _Stage, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _StageClock(math.inf)
    clock.enter(stage)
    assert not clock.exceeded()
    monkeypatch.setattr(work_pool, limit, -1.0)
    clock = _StageClock(math.inf)
    clock.enter(stage)
    assert clock.exceeded()


def test_the_time_limit_of_a_call_counts_from_its_begin() -> None:
    clock = _StageClock(-1.0)
    for stage in (_Stage.SCHEDULED, _Stage.STARTING, _Stage.WAITING):
        clock.enter(stage)
        assert not clock.exceeded()
    clock.enter(_Stage.BEGUN)
    assert clock.exceeded()


def test_an_outage_does_not_count_while_a_call_waits_for_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(work_pool.time, "monotonic", lambda: now[0])
    clock = _StageClock(10.0)
    now[0] = work_pool.START_SECONDS + 1
    assert clock.exceeded()
    clock.skip_outage()
    assert not clock.exceeded()
    clock.enter(_Stage.BEGUN)
    now[0] += 11
    clock.skip_outage()
    assert clock.exceeded(), "a call that has begun goes on without the server"


def test_a_failed_flow_run_names_its_cause() -> None:
    cause = "Flow run encountered an exception: InputError: calls travel through the shared artifacts"
    result = unanswered(StateType.FAILED, cause, 1.0, 60.0)
    assert (result.outcome, result.transient) == (Outcome.CRASHED, True)
    assert result.message == f"the flow run of the call ended failed: {cause}"
    assert unanswered(StateType.CRASHED, "", 1.0, None).message == "the flow run of the call ended crashed"
    assert unanswered(None, "", 61.0, 60.0).outcome is Outcome.TIMEOUT
