"""The trials of a deployed model run, executed by deployed runs of `tune_chain`.

Processes share nothing but the store, so each flow run can be retried or started again on any machine that reaches the
store, and does only the work that the store lacks.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import Pause
from prefect.runtime import flow_run
from prefect.states import Cancelling

from autoopt.engine.run.executor import Work
from autoopt.engine.run.session import Session
from autoopt.engine.run.trial import completed_record
from autoopt.engine.work.attempt import Work as CountedWork
from autoopt.engine.work.context import RunContext
from autoopt.errors import SystemFailure
from autoopt.orchestrate.flow_runs.naming import chain_deployment, chain_run_name, tags_of
from autoopt.orchestrate.server.heartbeats import FINAL_STATES, WatchedFlowRun
from autoopt.orchestrate.server.outages import Outage, client_retries, wait_out
from autoopt.outcome import Outcome
from autoopt.results import RunResult, TrialResult
from autoopt.store import TrialRecord

POLL_SECONDS = 0.5
CHECK_SECONDS = 3.0
"""Interval of checks of the chains' flow runs; a new trial causes one at once."""
LATE_SECONDS = 30.0
"""Time after the run's deadline in which chains deliver what they are finishing; nothing waits longer."""
OVERDUE = "no worker finished it in the run's time"
PAGE = 100
"""Flow runs in one request to the server."""
MAX_FRUITLESS_ROUNDS = 3
"""A chain's trials count as crashed after this many of its flow runs in a row have ended without finishing a trial."""


def search_deployed(session: Session) -> RunResult:
    """Run the search of a prepared run with its chains as deployed flow runs."""
    with DeployedExecutor(session.ctx, tags_of(session)) as executor:
        return session.search(executor)


@dataclass
class _Chain:
    """The flow runs of a chain, and the trials that the search waits for."""

    name: str
    flow_run: WatchedFlowRun | None = None
    rounds: int = 0
    fruitless: int = 0
    gave_way: bool = False
    """Its flow run has ended while its trials had to wait for earlier ones."""
    waiting: dict[int, Future[TrialResult]] = field(default_factory=dict)


class DeployedExecutor:
    """An `Executor` whose trials are executed by deployed runs of `tune_chain`; it waits for their rows in the store.

    Create it in the flow run of the model, so that the chains' flow runs are its children. A context manager; leaving
    it cancels flow runs that still run. While the Prefect server is away, results still arrive; if it stays away, the
    trials that the search waits for raise SystemFailure. If the deployed flow run is suspended, they raise Prefect's
    Pause, which ends the process until the flow run is resumed.
    """

    is_local = False
    ahead = 1
    """Meanwhile the process of its chain starts, and results are told."""

    def __init__(self, ctx: RunContext, tags: list[str]) -> None:
        self._ctx = ctx
        self._tags = tags
        self._id = uuid4().hex
        self._root: UUID | None = None
        """The deployed flow run to which this one belongs: its own, or that of a night."""
        self._queue: str | None = None
        self._deployment = ""
        self._chains: dict[str, _Chain] = {}
        self._counted: set[str] = set()
        self._error: BaseException | None = None
        self._new_trials = threading.Event()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._client: SyncPrefectClient
        # The thread's flow runs have to be children of this flow run, which Prefect keeps in a context variable.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._watch,), name="chains", daemon=True)

    def __enter__(self) -> DeployedExecutor:
        self._root = wait_out(_root_flow_run)
        self._queue = wait_out(self._own_queue)
        self._deployment = wait_out(chain_deployment)
        with client_retries(0):
            # With settings of its own the client is a new one, also inside a flow run. Making one takes 50 ms of CPU.
            self._client = get_client(sync_client=True, httpx_settings={})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()
        with client_retries(0), get_client(sync_client=True) as client:
            for chain in self._chains.values():
                if chain.flow_run is not None and (chain.waiting or self._error is not None):
                    # If the server is away, the flow runs see the end of the run in the store.
                    with suppress(Exception):
                        client.set_flow_run_state(chain.flow_run.id, Cancelling(message="the model's run has ended"))

    def _own_queue(self) -> str | None:
        """The work queue of the deployed flow run: its chains go to the same machines."""
        if self._root is None:
            return None
        with get_client(sync_client=True) as client:
            return client.read_flow_run(self._root).work_queue_name

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[TrialResult]:
        future: Future[TrialResult] = Future()
        with self._lock:
            if self._error is not None:
                raise self._error
            self._chains.setdefault(chain, _Chain(name)).waiting[number] = future
        self._new_trials.set()
        return future

    def _watch(self) -> None:
        outage = Outage()
        last_check = 0.0
        with client_retries(0), self._client:
            while not self._closed.wait(POLL_SECONDS):
                try:
                    self._collect()
                    if self._ctx.attempt.remaining() < -LATE_SECONDS:
                        self._end_overdue()
                    at_once = self._new_trials.is_set() and not outage.ongoing
                    if at_once or time.monotonic() - last_check > CHECK_SECONDS:
                        self._check(outage)
                        last_check = time.monotonic()
                except (Exception, Pause) as error:  # ends the search
                    self._fail(error)
                    return

    def _fail(self, error: BaseException) -> None:
        """End all trials with an error."""
        with self._lock:
            self._error = error
            for chain in self._chains.values():
                for future in chain.waiting.values():
                    future.set_exception(error)
                chain.waiting.clear()

    def _collect(self) -> None:
        """Hand over the results of finished trials."""
        with self._lock:
            waiting = {number for chain in self._chains.values() for number in chain.waiting}
        if not waiting:
            return
        for row in self._ctx.store.trials.all(self._ctx.run):
            if row.number in waiting and row.status == "done":
                chain = self._chains[row.chain]
                chain.fruitless = 0
                self._count(row)
                with self._lock:
                    future = chain.waiting.pop(row.number)
                future.set_result(row.result)

    def _end_overdue(self) -> None:
        """End the trials that no chain has delivered in the run's time."""
        with self._lock:
            chains = {key: chain for key, chain in self._chains.items() if chain.waiting}
        for key, chain in chains.items():
            self._finish(key, set(chain.waiting), Outcome.TIMEOUT, OVERDUE)
        self._collect()
        for key, chain in chains.items():
            for number in list(chain.waiting):  # another process holds it, and may still finish the row
                point = self._ctx.store.trials.get(self._ctx.run, number).point
                result = TrialResult(chain=key, point=point, outcome=Outcome.TIMEOUT, message=OVERDUE, transient=True)
                with self._lock:
                    future = chain.waiting.pop(number)
                future.set_result(result)

    def _count(self, row: TrialRecord) -> None:
        """Add the work of another process for a trial to this run's counts."""
        results = self._ctx.store.results
        pass_runs, evaluations = results.pass_runs(row.pass_runs), results.evaluations(row.evaluations)
        for key in row.pass_runs:
            self._count_work("pass_runs", key, key in pass_runs and pass_runs[key].run == self._ctx.run)
        for key in row.evaluations:
            self._count_work("evaluations", key, key in evaluations and evaluations[key].run == self._ctx.run)

    def _count_work(self, kind: CountedWork, key: str, of_this_run: bool) -> None:
        """Count a piece of work as executed by the first trial of the run that executed it, as reused by others."""
        executed = of_this_run and key not in self._counted
        self._counted.add(key)
        if executed:
            self._ctx.attempt.counts.add_executed(kind)
        else:
            self._ctx.attempt.counts.add_reused(kind)

    def _check(self, outage: Outage) -> None:
        """Start flow runs for chains whose trials nobody will execute."""
        with self._lock:
            chains = {key: chain for key, chain in self._chains.items() if chain.waiting}
        self._new_trials.clear()
        complete = False
        # Holds back the errors of a server that is away; the rest of the block is skipped then.
        with outage:
            flow_runs = self._read_flow_runs(chains.values())
            self._raise_if_suspended(flow_runs)
            may_begin = self._trials_that_may_begin(chains.values())
            for key, chain in chains.items():
                self._check_chain(key, chain, flow_runs, may_begin)
            complete = True
        if not complete:
            self._new_trials.set()

    def _read_flow_runs(self, chains: Collection[_Chain]) -> dict[UUID, FlowRun]:
        """Read the deployed flow run and those of some chains, in as few requests as possible."""
        wanted = [chain.flow_run.id for chain in chains if chain.flow_run is not None]
        if self._root is not None:
            wanted.append(self._root)
        flow_runs: dict[UUID, FlowRun] = {}
        for start in range(0, len(wanted), PAGE):
            page = FlowRunFilter(id=FlowRunFilterId(any_=wanted[start : start + PAGE]))
            for row in self._client.read_flow_runs(flow_run_filter=page):
                flow_runs[row.id] = row
        return flow_runs

    def _raise_if_suspended(self, flow_runs: Mapping[UUID, FlowRun]) -> None:
        """Raise Prefect's Pause if somebody has suspended the deployed flow run, SystemFailure if it was deleted."""
        if self._root is None:
            return
        if self._root not in flow_runs:
            raise SystemFailure("somebody has deleted the flow run of this run", where=f"flow run {self._root}")
        state = flow_runs[self._root].state
        if state is not None and state.is_paused():
            raise Pause(state=state)

    def _trials_that_may_begin(self, chains: Iterable[_Chain]) -> set[int]:
        """Numbers of the trials that run or may begin; the others wait for earlier ones."""
        waiting = sorted(number for chain in chains for number in chain.waiting)
        return set(waiting[: self._ctx.attempt.workers])

    def _check_chain(
        self, key: str, chain: _Chain, flow_runs: Mapping[UUID, FlowRun], may_begin: Collection[int]
    ) -> None:
        has_turn = min(chain.waiting) in may_begin
        if chain.flow_run is not None:
            state = chain.flow_run.state_of(flow_runs.get(chain.flow_run.id))
            if state is None or state.value not in FINAL_STATES:
                return
            chain.flow_run = None
            if not has_turn and state is StateType.COMPLETED:
                chain.gave_way = True
                return
            chain.fruitless += 1
            if chain.fruitless >= MAX_FRUITLESS_ROUNDS or state is StateType.CANCELLED:
                self._give_up(key, chain, state)
                return
        # Where another flow run needed the slot before, this one takes it again only when it can use it.
        if has_turn or not chain.gave_way:
            self._start(key, chain)

    def _start(self, key: str, chain: _Chain) -> None:
        round_ = chain.rounds + 1
        # Typed as a coroutine, but in a thread without an event loop it returns the flow run.
        created: Any = run_deployment(
            self._deployment,
            parameters={"run": self._ctx.run, "chain": key, "round": round_},
            flow_run_name=chain_run_name(chain.name, round_),
            tags=[*self._tags, f"chain:{key}"],
            timeout=0,
            work_queue_name=self._queue,
            # The request is repeated if the server's answer was lost.
            idempotency_key=f"{self._id}/{key}/{round_}",
        )
        chain.flow_run = WatchedFlowRun(UUID(str(created.id)), self._client)
        chain.rounds = round_
        chain.gave_way = False

    def _give_up(self, key: str, chain: _Chain, state: StateType) -> None:
        """Finish the trials of a chain as crashed; a retry executes them again."""
        with self._lock:
            waiting = set(chain.waiting)
        self._finish(key, waiting, Outcome.CRASHED, f"the flow run of the chain ended {state.value.lower()}")

    def _finish(self, key: str, numbers: Collection[int], outcome: Outcome, message: str) -> None:
        """Finish trials of a chain that nobody executes; a retry executes them again."""
        store = self._ctx.store
        for row in store.trials.all(self._ctx.run):
            if row.number in numbers and store.claims.acquire("trial", row.key):
                result = TrialResult(chain=key, point=row.point, outcome=outcome, message=message, transient=True)
                store.trials.finish(completed_record(row, result))


def _root_flow_run() -> UUID | None:
    """The deployed flow run to which the current one belongs. Prefect asks the server for each level above it."""
    root = flow_run.root_flow_run_id
    if not root:
        return None
    return UUID(str(root))
