"""Prefect flow runs made from a run: one per chain under one for the model, trials as task runs.

The engine's loop asks and tells in a thread of its own; each trial it hands out becomes a task run inside the flow run
of its chain. Prefect shows and records; the store is the truth, so nothing of a result passes through Prefect.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from prefect import flow, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from autoopt.engine.run.executor import Executor, Work
from autoopt.errors import EXIT_INTERRUPTED
from autoopt.orchestrate.flow_runs.artifacts import show_chain, show_result
from autoopt.orchestrate.flow_runs.naming import flow_run_name
from autoopt.results import RunResult, TrialResult
from autoopt.store import Store
from autoopt.workers import Cancelled

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Order:
    """One trial on its way into the flow run of its chain."""

    chain: str
    name: str
    number: int
    work: Work
    future: Future[TrialResult]


ROUND = 100
"""Trials in one flow run of a chain: the server digests some 20 task runs a second, and its pages show 200 rows."""


class FlowExecutor:
    """An `Executor` that hands each trial to the event loop in which the chains' flow runs live."""

    def __init__(self, loop: asyncio.AbstractEventLoop, orders: asyncio.Queue[_Order | None]) -> None:
        self._loop, self._orders = loop, orders
        self._lock = threading.Lock()
        self._open: set[Future[TrialResult]] = set()
        self._ended = False

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[TrialResult]:
        future: Future[TrialResult] = Future()
        order = _Order(chain, name, number, work, future)
        with self._lock:
            if self._ended:
                raise Cancelled("the flow run has ended")
            self._open.add(future)
        future.add_done_callback(self._open.discard)
        self._loop.call_soon_threadsafe(self._orders.put_nowait, order)
        return future

    def end(self) -> None:
        """Carry out no more; who waits for a trial is told so."""
        with self._lock:
            self._ended = True
        for future in list(self._open):
            with suppress(InvalidStateError):
                future.set_exception(Cancelled("the flow run has ended"))


@task(name="trial", task_run_name="{label}", cache_policy=NO_CACHE, persist_result=False)
async def _trial(label: str, order_id: int) -> State[Any]:
    """One trial; its state says what became of it, its result stays in the store."""
    order = _orders_under_way[order_id]
    result = await asyncio.to_thread(order.work)
    order.future.set_result(result)
    said = f"{result.outcome}: {result.message}" if result.message else _summary(result)
    return Completed(message=said) if result.outcome.good else Failed(message=said)


_orders_under_way: dict[int, _Order] = {}


async def _carry_out(order: _Order) -> TrialResult | None:
    _orders_under_way[id(order)] = order
    try:
        trial: Any = _trial  # its stub has no overload for a coroutine that returns its state
        await trial(f"trial {order.number}", id(order), return_state=True)
    except BaseException as error:
        if not order.future.done():
            order.future.set_exception(error)
        raise
    finally:
        del _orders_under_way[id(order)]
        if not order.future.done():  # Prefect itself failed before the work ran
            order.future.set_exception(RuntimeError("the task run ended without a result"))
    return None if order.future.exception() else order.future.result()


async def _chain(queue: asyncio.Queue[_Order | None], width: int, show: Callable[[], None]) -> State[Any]:
    """A chain's flow run: takes trials until there are no more, up to `width` at a time, and shows them at the end."""
    results: list[TrialResult] = []

    async def take() -> None:
        while (order := await queue.get()) is not None:
            result = await _carry_out(order)
            if result is not None:
                results.append(result)
        queue.put_nowait(None)

    await asyncio.gather(*(take() for _ in range(width)))
    if results:
        await asyncio.to_thread(show)
    good = sum(r.outcome.good for r in results)
    said = f"{good} of {len(results)} trials ok"
    return Completed(message=said) if good else Failed(message=said)


GRACE_SECONDS = 15.0
"""How long Prefect gets to record that a run was interrupted; its server may have been ended along with us."""


class Chains(Generic[Result]):
    """The flow runs of one model's chains, each started when its first trial is handed out, a new one every `ROUND`."""

    def __init__(self, width: int, show: Callable[[str], None], stop: Callable[[], None]) -> None:
        """`width`: trials at once; `show`: shows a chain, by its id, in the flow run under way; `stop`: ends the work
        of trials under way."""
        self._width, self._show, self._stop = width, show, stop
        self._queues: dict[str, asyncio.Queue[_Order | None]] = {}
        self._counts: Counter[str] = Counter()
        self._runs: list[asyncio.Task[Any]] = []

    async def serve(self, loop_work: Callable[[Executor], Result]) -> Result:
        """Run the engine's loop in a thread and its trials in chain flow runs; returns the loop's result."""
        orders: asyncio.Queue[_Order | None] = asyncio.Queue()
        executor = FlowExecutor(asyncio.get_running_loop(), orders)
        job = asyncio.create_task(asyncio.to_thread(loop_work, executor))
        job.add_done_callback(lambda _: orders.put_nowait(None))
        try:
            while (order := await orders.get()) is not None:
                if self._counts[order.chain] % ROUND == 0:
                    self._start(order)
                self._counts[order.chain] += 1
                self._queues[order.chain].put_nowait(order)
        except BaseException:  # interrupted: the loop's thread must not wait for what will not come
            executor.end()
            self._stop()
            raise
        for queue in self._queues.values():
            queue.put_nowait(None)
        await asyncio.gather(*self._runs, return_exceptions=True)
        return await job

    def _start(self, order: _Order) -> None:
        if order.chain in self._queues:
            self._queues[order.chain].put_nowait(None)  # the round before has all its trials
        queue: asyncio.Queue[_Order | None] = asyncio.Queue()
        self._queues[order.chain] = queue
        round_ = self._counts[order.chain] // ROUND + 1
        name = order.name if round_ == 1 else f"{order.name} · round {round_}"
        width, show = self._width, partial(self._show, order.chain)

        async def tune_chain(chain: str, passes: str) -> State[Any]:
            return await _chain(queue, width, show)

        run = flow(name="tune_chain", flow_run_name="{passes}", validate_parameters=False)(tune_chain)
        with tags(flow_run_name(f"chain:{order.chain}")):
            self._runs.append(asyncio.ensure_future(run(order.chain, name, return_state=True)))


def run_as_flow(
    loop_work: Callable[[Executor], RunResult],
    *,
    run: str,
    model: str,
    dag: str,
    width: int,
    store: Store,
    tags_of_run: Sequence[str] = (),
    begun: Callable[[str], None] = lambda flow_run: None,
    stop: Callable[[], None] = lambda: None,
) -> RunResult:
    """Carry out a run as flow `optimize_model` with its chains as sub-flows; blocks until it is done.

    The engine's errors come out as they are. `begun` is called with the id of the flow run, `stop` when it is
    interrupted, to end the work of trials under way.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    outcome: list[RunResult | BaseException] = []
    # An end as if killed, where Prefect comes to none: the store is right at any moment, and a resume goes on.
    end = threading.Timer(GRACE_SECONDS, os._exit, [EXIT_INTERRUPTED])
    end.daemon = True

    def interrupted() -> None:
        end.start()
        stop()

    async def optimize_model(run: str, model: str, dag: str) -> State[Any]:
        try:
            begun(str(flow_run.id))
            result = await Chains[RunResult](width, partial(show_chain, store, run), interrupted).serve(loop_work)
        except BaseException as error:
            outcome.append(error)
            return Failed(message=f"{type(error).__name__}: {error}")
        outcome.append(result)
        await asyncio.to_thread(show_result, store, result)
        return Completed(message=result.status)

    name = flow_run_name(f"{model} · {dag}")
    parent = flow(name="optimize_model", flow_run_name=name, validate_parameters=False)(optimize_model)
    try:
        with tags(*tags_of_run):
            asyncio.run(parent(run, model, dag, return_state=True))  # type: ignore[arg-type]  # a coroutine: an async flow
    except TerminationSignal:  # Prefect's own word for SIGTERM
        raise KeyboardInterrupt from None
    finally:
        end.cancel()
    if not outcome:
        raise RuntimeError("the flow run ended before the search began")
    if isinstance(outcome[0], asyncio.CancelledError):
        raise KeyboardInterrupt
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _summary(result: TrialResult) -> str:
    shown = [
        f"{name} {estimate.value:.4g}x" for name, estimate in result.ratios.items() if name in ("latency_p50", "size")
    ]
    shown += [f"breaks: {reason}" for reason in result.reasons[:1] if result.violation > 0]
    return ", ".join([str(result.outcome), *shown])
