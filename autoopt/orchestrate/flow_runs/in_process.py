"""A run of this process as flow runs: one for the model, below it one for each chain, with trials as task runs.

The engine's loop runs in a thread of its own; each trial that it submits becomes a task run inside the flow run of its
chain. Prefect shows and records. Results do not pass through Prefect: they are in the store.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prefect import flow, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from autoopt.engine.run.executor import Work
from autoopt.engine.run.session import Session
from autoopt.errors import EXIT_INTERRUPTED
from autoopt.observer import ObserverGroup
from autoopt.orchestrate.flow_runs import naming
from autoopt.orchestrate.flow_runs.artifacts import show_chain, show_result
from autoopt.orchestrate.flow_runs.naming import (
    chain_run_name,
    chain_state,
    headlines,
    session_run_name,
    tags_of,
    trial_state,
)
from autoopt.orchestrate.flow_runs.orphaned_runs import close_orphans, record_flow_run
from autoopt.orchestrate.flow_runs.run_log import RunLog, log_result, log_trial, quiet_failed_states, run_logger
from autoopt.results import RunResult, Trial, TrialResult
from autoopt.workers import Cancelled

GRACE_SECONDS = 15.0
"""Time for Prefect to record that a run was interrupted; its server may have been ended together with this process."""


def run_as_flow(session: Session) -> RunResult:
    """Execute a prepared run as flow `optimize_model`; blocks until it ends. The engine's errors are raised unchanged.

    Raises:
        KeyboardInterrupt: the run was interrupted.
    """
    ctx = session.ctx
    close_orphans(ctx.store, ctx.run)
    outcome: Future[RunResult] = Future()
    # If Prefect does not come to an end, this process ends as if killed: the store is consistent at any moment, and
    # the run can be resumed.
    kill = threading.Timer(GRACE_SECONDS, os._exit, [EXIT_INTERRUPTED])
    kill.daemon = True

    def interrupt() -> None:
        kill.start()
        ctx.resources.stop()

    name = session_run_name(session)

    async def optimize_model(run: str, model: str, dag: str) -> State[None]:
        try:
            record_flow_run(ctx.store, run, str(flow_run.id))
            logger = run_logger()
            session.observe_with(ObserverGroup(ctx.attempt.observer, RunLog(logger)))
            result = await _ChainFlows(session, interrupt).run()
        except BaseException as error:
            outcome.set_exception(error)
            return Failed(message=f"{type(error).__name__}: {error}")
        outcome.set_result(result)
        log_result(logger, result)
        await asyncio.to_thread(show_result, ctx.store, result, name)
        return Completed(message=result.status)

    model, _, dag = name.partition(" · ")
    # Typed without an overload for a coroutine that returns its state.
    parent: Any = flow(name="optimize_model", flow_run_name=name, validate_parameters=False)(optimize_model)
    try:
        with tags(*tags_of(session)):
            asyncio.run(parent(ctx.run, model, dag, return_state=True))
    except TerminationSignal:  # Prefect's form of SIGTERM
        raise KeyboardInterrupt from None
    finally:
        kill.cancel()
    if not outcome.done():
        raise RuntimeError("the flow run ended before the search began")
    try:
        return outcome.result()
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@dataclass(frozen=True)
class _TrialRequest:
    """A trial on its way into the flow run of its chain."""

    chain: str
    chain_name: str
    number: int
    work: Work
    future: Future[TrialResult]

    def fail(self, error: BaseException) -> None:
        """Report an error, unless the trial has ended."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class FlowExecutor:
    """An `Executor` that hands each trial to the event loop of the chains' flow runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, requests: asyncio.Queue[_TrialRequest | None]) -> None:
        self._loop = loop
        self._requests = requests
        self._lock = threading.Lock()
        self._open: dict[Future[TrialResult], _TrialRequest] = {}
        self._ended = False

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[TrialResult]:
        future: Future[TrialResult] = Future()
        request = _TrialRequest(chain, name, number, work, future)
        with self._lock:
            if self._ended:
                raise Cancelled("the flow run has ended")
            self._open[future] = request
        future.add_done_callback(lambda done: self._open.pop(done, None))
        self._loop.call_soon_threadsafe(self._requests.put_nowait, request)
        return future

    def end(self) -> None:
        """Accept no more trials; those that are open raise `Cancelled`."""
        with self._lock:
            self._ended = True
        for request in list(self._open.values()):
            request.fail(Cancelled("the flow run has ended"))


class _ChainFlows:
    """The flow runs of a run's chains, each started with its first trial, and anew after `MAX_TRIALS` trials."""

    def __init__(self, session: Session, interrupt: Callable[[], None]) -> None:
        self._session = session
        self._interrupt = interrupt
        self._queues: dict[str, asyncio.Queue[_TrialRequest | None]] = {}
        self._counts: Counter[str] = Counter()
        self._flow_runs: list[asyncio.Task[Any]] = []

    async def run(self) -> RunResult:
        """Run the engine's loop in a thread and its trials in flow runs; returns the loop's result."""
        requests: asyncio.Queue[_TrialRequest | None] = asyncio.Queue()
        executor = FlowExecutor(asyncio.get_running_loop(), requests)
        search = asyncio.create_task(asyncio.to_thread(self._session.search, executor))
        search.add_done_callback(lambda _: requests.put_nowait(None))
        try:
            while (request := await requests.get()) is not None:
                if self._counts[request.chain] % naming.MAX_TRIALS == 0:
                    self._start(request)
                self._counts[request.chain] += 1
                self._queues[request.chain].put_nowait(request)
        except BaseException:
            # Interrupted. The loop's thread must not wait for trials that will not end.
            executor.end()
            self._interrupt()
            raise
        for queue in self._queues.values():
            queue.put_nowait(None)
        await asyncio.gather(*self._flow_runs, return_exceptions=True)
        return await search

    def _start(self, request: _TrialRequest) -> None:
        """Start a flow run for the chain of this trial."""
        if request.chain in self._queues:
            self._queues[request.chain].put_nowait(None)  # the round before has all its trials
        queue: asyncio.Queue[_TrialRequest | None] = asyncio.Queue()
        self._queues[request.chain] = queue
        session = self._session

        async def tune_chain(chain: str, passes: str) -> State[None]:
            return await _run_chain(session, chain, queue)

        name = chain_run_name(request.chain_name, self._counts[request.chain] // naming.MAX_TRIALS + 1)
        run = flow(name="tune_chain", flow_run_name="{passes}", validate_parameters=False)(tune_chain)
        with tags(naming.flow_run_name(f"chain:{request.chain}")):
            self._flow_runs.append(asyncio.ensure_future(run(request.chain, name, return_state=True)))


async def _run_chain(session: Session, chain: str, queue: asyncio.Queue[_TrialRequest | None]) -> State[None]:
    """Run the trials of a chain as task runs, as many at once as the run has workers, and show them at the end."""
    ctx = session.ctx
    requests: dict[int, _TrialRequest] = {}
    results: list[TrialResult] = []

    @task(name="trial", task_run_name="trial {number}", cache_policy=NO_CACHE, persist_result=False)
    async def trial(number: int) -> State[None]:
        request = requests[number]
        try:
            result = await asyncio.to_thread(request.work)
        except BaseException as error:
            request.fail(error)
            raise
        request.future.set_result(result)
        results.append(result)
        log_trial(run_logger(), Trial(number, request.chain_name, result), headlines(session))
        return trial_state(result, session)

    quiet_failed_states()
    run_trial: Any = trial  # typed without an overload for a coroutine that returns its state

    async def run_trials() -> None:
        while (request := await queue.get()) is not None:
            requests[request.number] = request
            try:
                await run_trial(request.number, return_state=True)
            except BaseException as error:
                request.fail(error)
                raise
            finally:
                # Prefect itself may have failed before the work ran.
                request.fail(RuntimeError("the task run ended without a result"))
        queue.put_nowait(None)

    await asyncio.gather(*(run_trials() for _ in range(ctx.attempt.workers)))
    if results:
        names = (session_run_name(session), session.chains[chain].name)
        await asyncio.to_thread(show_chain, ctx.store, ctx.run, chain, *names)
    return chain_state(results, len(results))
