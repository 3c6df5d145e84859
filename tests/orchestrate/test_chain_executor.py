"""Trials of a deployed run: results come from the rows of a real store; flow runs are not started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import Pause
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Completed, Running, Suspended
from prefect_server import free_port, prepared, running_server
from serving import environment
from store_owners import by

from autoopt.errors import SystemFailure
from autoopt.orchestrate.flow_runs.chain_executor import MAX_FRUITLESS_ROUNDS, DeployedExecutor
from autoopt.orchestrate.server.heartbeats import WatchedFlowRun
from autoopt.orchestrate.server.outages import Outage
from autoopt.outcome import Outcome
from autoopt.results import TrialResult
from autoopt.store import ChainRecord, ModelRecord, RunRecord, Store, TrialRecord

CHAIN = "c" * 8


@pytest.fixture
def run(store: Store, tmp_path: Path) -> str:
    """A run with two pending trials of one chain."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.onnx").write_bytes(b"x")
    model = store.artifacts.put(tmp_path / "m")
    store.models.add(ModelRecord(artifact=model, name="m"))
    record = RunRecord(id="", name="r", identity="i", model=model)
    run = store.runs.create(record, [ChainRecord(id=CHAIN, name="a -> b")]).id
    for number in (0, 1):
        store.trials.add(TrialRecord(run=run, number=number, chain=CHAIN, point={}))
    return run


@pytest.fixture
def executor(store: Store, run: str) -> DeployedExecutor:
    context: Any = SimpleNamespace(store=store, run=run, attempt=SimpleNamespace(workers=2))
    return DeployedExecutor(context, [])


def work() -> TrialResult:
    raise AssertionError("another process executes the trial")


def test_a_result_is_read_from_the_row_that_another_process_finished(
    executor: DeployedExecutor, store: Store, run: str
) -> None:
    first, second = (executor.submit(CHAIN, "a -> b", number, work) for number in (0, 1))
    executor._collect()
    assert not first.done()
    row = next(row for row in store.trials.all(run) if row.number == 0)
    assert store.claims.acquire("trial", row.key)
    finished = TrialRecord(**{**vars(row), "status": "done", "outcome": Outcome.REFUSED, "message": "odd"})
    store.trials.finish(finished)
    executor._collect()
    assert (first.result(0).outcome, first.result(0).message) == (Outcome.REFUSED, "odd")
    assert not second.done()


def test_the_trials_of_a_chain_without_progress_are_finished_as_crashed(
    executor: DeployedExecutor, store: Store, run: str
) -> None:
    future = executor.submit(CHAIN, "a -> b", 0, work)
    executor._give_up(CHAIN, executor._chains[CHAIN], StateType.CRASHED)
    executor._collect()
    result = future.result(0)
    assert (result.outcome, result.message) == (Outcome.CRASHED, "the flow run of the chain ended crashed")
    assert [row.status for row in store.trials.all(run)] == ["done", "pending"], "nobody waits for the other one"


def test_an_error_of_the_server_ends_all_trials_and_refuses_new_ones(executor: DeployedExecutor) -> None:
    future = executor.submit(CHAIN, "a -> b", 0, work)
    executor._fail(SystemFailure("the server stays away"))
    with pytest.raises(SystemFailure, match="stays away"):
        future.result(0)
    with pytest.raises(SystemFailure, match="stays away"):
        executor.submit(CHAIN, "a -> b", 1, work)


@pytest.mark.parametrize("claimed", [False, True])
def test_nothing_waits_for_a_lost_chain_beyond_the_time_of_the_run(
    executor: DeployedExecutor, store: Store, run: str, claimed: bool
) -> None:
    future = executor.submit(CHAIN, "a -> b", 0, work)
    if claimed:
        assert by(store, "a process that may be alive").claims.acquire("trial", store.trials.get(run, 0).key)
    executor._end_overdue()
    result = future.result(0)
    assert (result.outcome, result.transient) == (Outcome.TIMEOUT, True)
    assert result.message == "no worker finished it in the run's time"
    assert store.trials.get(run, 0).status == ("running" if claimed else "done")


@pytest.mark.service
def test_one_request_reads_all_chains_and_whether_the_run_is_suspended(
    executor: DeployedExecutor, tmp_path: Path
) -> None:
    asked: list[httpx.Request] = []

    @flow
    def empty() -> None:
        """Never called."""

    env = environment(tmp_path, PREFECT_HOME=str(prepared(tmp_path / "prefect")))
    with running_server(env, free_port(), tmp_path / "log") as url, temporary_settings({PREFECT_API_URL: url}):
        hooks = {"event_hooks": {"request": [asked.append]}}
        with get_client(sync_client=True, httpx_settings=hooks) as client:
            root, working, lost = (client.create_flow_run(empty, state=Running()) for _ in range(3))
            client.delete_flow_run(lost.id)
            executor._client, executor._root = client, root.id
            at_work, crashed = executor.submit("d" * 8, "a", 7, work), executor.submit(CHAIN, "a -> b", 0, work)
            executor._chains["d" * 8].flow_run = WatchedFlowRun(working.id, client)
            executor._chains[CHAIN].flow_run = WatchedFlowRun(lost.id, client)
            executor._chains[CHAIN].fruitless = MAX_FRUITLESS_ROUNDS - 1  # the next one would need a deployment
            asked.clear()
            executor._check(Outage())
            executor._collect()
            assert [request.url.path for request in asked] == ["/api/flow_runs/filter"]
            assert not at_work.done()
            assert crashed.result(0).message == "the flow run of the chain ended crashed"

            client.set_flow_run_state(root.id, Suspended(timeout_seconds=300), force=True)
            with pytest.raises(Pause):
                executor._check(Outage())
            client.delete_flow_run(root.id)
            with pytest.raises(SystemFailure, match="deleted"):
                executor._check(Outage())


def test_a_chain_that_made_room_while_its_trial_had_to_wait_starts_again_when_it_may_begin(
    executor: DeployedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(executor, "_start", lambda key, chain: started.append(key))
    executor.submit("d" * 8, "a", 0, work)
    executor.submit(CHAIN, "a -> b", 1, work)
    chain = executor._chains[CHAIN]
    chain.flow_run = WatchedFlowRun(uuid4(), SimpleNamespace())  # type: ignore[arg-type]
    flow_run = FlowRun(flow_id=uuid4(), state=Completed(), state_type=StateType.COMPLETED)
    ended = {chain.flow_run.id: flow_run}
    executor._check_chain(CHAIN, chain, ended, may_begin={0})
    executor._check_chain(CHAIN, chain, {}, may_begin={0})
    assert started == []
    assert chain.fruitless == 0
    executor._check_chain(CHAIN, chain, {}, may_begin={1})
    assert started == [CHAIN]
