"""The executor that hands trials to the event loop of a run's flow runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from autoopt.orchestrate.flow_runs.in_process import FlowExecutor
from autoopt.outcome import Outcome
from autoopt.results import TrialResult
from autoopt.workers import Cancelled

RESULT = TrialResult("c", {}, Outcome.OK)


def with_executor(use: Any) -> Any:
    """Run `await use(executor, requests)` in an event loop."""

    async def main() -> Any:
        requests: asyncio.Queue[Any] = asyncio.Queue()
        return await use(FlowExecutor(asyncio.get_running_loop(), requests), requests)

    return asyncio.run(main())


def test_a_trial_submitted_in_a_thread_reaches_the_event_loop() -> None:
    async def use(executor: FlowExecutor, requests: asyncio.Queue[Any]) -> TrialResult:
        future = await asyncio.to_thread(executor.submit, "c", "a -> b", 3, lambda: RESULT)
        request = await requests.get()
        assert (request.chain, request.chain_name, request.number) == ("c", "a -> b", 3)
        request.future.set_result(request.work())
        return await asyncio.to_thread(future.result, 10)

    assert with_executor(use) is RESULT


def test_open_trials_are_cancelled_at_the_end_and_no_more_are_accepted() -> None:
    async def use(executor: FlowExecutor, requests: asyncio.Queue[Any]) -> None:
        finished, still_open = (executor.submit("c", "n", number, lambda: RESULT) for number in (0, 1))
        finished.set_result(RESULT)
        executor.end()
        assert finished.result() is RESULT
        with pytest.raises(Cancelled, match="the flow run has ended"):
            still_open.result()
        with pytest.raises(Cancelled, match="the flow run has ended"):
            executor.submit("c", "n", 2, lambda: RESULT)

    with_executor(use)


def test_an_error_after_the_end_of_a_trial_changes_nothing() -> None:
    async def use(executor: FlowExecutor, requests: asyncio.Queue[Any]) -> None:
        future = executor.submit("c", "n", 0, lambda: RESULT)
        request = await requests.get()
        request.fail(ValueError("first"))
        request.fail(ValueError("second"))
        with pytest.raises(ValueError, match="first"):
            future.result()

    with_executor(use)
