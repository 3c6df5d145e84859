"""Runs as deployed flow runs: the model's run asks and tells, the chains' runs carry out the rows of their trials.

All that is known of a run is in the store, so each of them can be retried or started anew, on any machine that reaches
it, and does only what the store lacks.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.deployments import run_deployment
from prefect.runtime import flow_run
from prefect.states import Cancelling

from autoopt.engine.run.executor import Work
from autoopt.engine.run.session import Session
from autoopt.engine.run.trial import ended, result_of
from autoopt.engine.work.context import RunContext
from autoopt.orchestrate.server.heartbeats import WatchedFlowRun
from autoopt.orchestrate.server.outages import Outage, client_retries, wait_out
from autoopt.outcome import Outcome
from autoopt.results import RunResult, TrialResult
from autoopt.store import TrialRecord

CHAIN_DEPLOYMENT = "tune_chain/autoopt"
POLL_SECONDS = 0.5
LOOK_SECONDS = 3.0
"""How often the states of the chains' flow runs are looked at, beside when a trial is asked for."""
ROUNDS_WITHOUT_PROGRESS = 3
"""How many flow runs of a chain may end without finishing a trial before its trials count as crashed."""


@dataclass
class _Chain:
    """What the model's run knows of a chain's flow runs."""

    name: str
    flow_run: WatchedFlowRun | None = None
    rounds: int = 0
    fruitless: int = 0
    waiting: dict[int, Future[TrialResult]] = field(default_factory=dict)


class DeployedExecutor:
    """An `Executor` that has trials carried out by deployed runs of `tune_chain`, and waits for their rows.

    To be made in the flow run of the model, so that the chains' runs are its children. A context manager; leaving it
    cancels the chains' runs that are still going on. While the Prefect server is away, trials are given back as ever;
    where it stays away, those that are waited for end with a SystemFailure.
    """

    def __init__(self, ctx: RunContext, tags: list[str]) -> None:
        self._ctx, self._tags = ctx, tags
        self._id = uuid4().hex
        self._queue: str | None = None
        self._chains: dict[str, _Chain] = {}
        self._counted: set[str] = set()
        self._error: Exception | None = None
        self._asked = False
        """Whether a trial has been asked for since the chains' flow runs were looked at."""
        self._lock = threading.Lock()
        self._over = threading.Event()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._watch,), name="chains", daemon=True)

    def __enter__(self) -> DeployedExecutor:
        self._queue = wait_out(_own_queue)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with client_retries(0), get_client(sync_client=True) as client:
            for chain in self._chains.values():
                if chain.flow_run is not None and chain.waiting:
                    with suppress(Exception):  # the server may be what has failed; the runs then see it in the store
                        client.set_flow_run_state(chain.flow_run.id, Cancelling(message="the model's run has ended"))

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[TrialResult]:
        future: Future[TrialResult] = Future()
        with self._lock:
            if self._error is not None:
                raise self._error
            self._chains.setdefault(chain, _Chain(name)).waiting[number] = future
            self._asked = True
        return future

    def _watch(self) -> None:
        outage, looked = Outage(), 0.0
        with client_retries(0):
            while not self._over.wait(POLL_SECONDS):
                try:
                    self._hand_in()
                    needy = self._needy()
                    soon = self._asked and not outage.ongoing
                    if needy and (soon or time.monotonic() - looked > LOOK_SECONDS):
                        self._asked, failed = False, True
                        with outage:
                            self._look(needy)
                            failed = False
                        self._asked = self._asked or failed
                        looked = time.monotonic()
                except Exception as error:  # the search ends with it
                    self._fail_all(error)
                    return

    def _fail_all(self, error: Exception) -> None:
        with self._lock:
            self._error = error
            for chain in self._chains.values():
                for future in chain.waiting.values():
                    future.set_exception(error)
                chain.waiting.clear()

    def _needy(self) -> dict[str, _Chain]:
        """The chains whose trials are waited for."""
        with self._lock:
            return {key: c for key, c in self._chains.items() if c.waiting}

    def _hand_in(self) -> None:
        """Give back what has been done."""
        with self._lock:
            wanted = {number for c in self._chains.values() for number in c.waiting}
        if not wanted:
            return
        rows = self._ctx.store.trials.all(self._ctx.run)
        for row in rows:
            if row.number in wanted and row.status == "done":
                chain = self._chains[row.chain]
                chain.fruitless = 0
                self._count(row)
                with self._lock:
                    future = chain.waiting.pop(row.number)
                future.set_result(result_of(row))

    def _count(self, row: TrialRecord) -> None:
        """Book what another process executed or reused for a trial."""
        passes = {k: r.run for k, r in self._ctx.store.results.pass_runs(row.pass_runs).items()}
        measured = {k: r.run for k, r in self._ctx.store.results.evaluations(row.evaluations).items()}
        for kind, keys, runs in (("pass_runs", row.pass_runs, passes), ("evaluations", row.evaluations, measured)):
            for key in keys:
                fresh = runs.get(key) == self._ctx.run and key not in self._counted
                self._counted.add(key)
                self._ctx.counts.add(kind, executed=fresh)

    def _look(self, chains: dict[str, _Chain]) -> None:
        """Start flow runs for those of the chains whose trials nobody will carry out."""
        for key, chain in chains.items():
            if chain.flow_run is not None:
                state = chain.flow_run.state()
                if state not in _ENDED:
                    continue
                chain.flow_run = None
                chain.fruitless += 1
                if chain.fruitless >= ROUNDS_WITHOUT_PROGRESS or state is StateType.CANCELLED:
                    self._give_up(key, chain, state)
                    continue
            self._start(key, chain)

    def _start(self, key: str, chain: _Chain) -> None:
        round_ = chain.rounds + 1
        made: Any = run_deployment(
            CHAIN_DEPLOYMENT,
            parameters={"run": self._ctx.run, "chain": key, "round": round_},
            flow_run_name=chain.name if round_ == 1 else f"{chain.name} · round {round_}",
            tags=[*self._tags, f"chain:{key}"],
            timeout=0,
            work_queue_name=self._queue,
            idempotency_key=f"{self._id}/{key}/{round_}",  # asked for twice where the server's answer was lost
        )
        chain.flow_run, chain.rounds = WatchedFlowRun(UUID(str(made.id))), round_

    def _give_up(self, key: str, chain: _Chain, state: StateType) -> None:
        """The trials of a chain whose runs do not come to anything count as crashed; a retry does them again."""
        with self._lock:
            waiting = dict(chain.waiting)
        store, run = self._ctx.store, self._ctx.run
        for row in store.trials.all(run):
            if row.number in waiting and store.claims.acquire("trial", row.key):
                message = f"the flow run of the chain ended {state.value.lower()}"
                result = TrialResult(chain=key, point=row.point, outcome=Outcome.CRASHED, message=message)
                store.trials.finish(ended(row, result), owner=store.owner)


_ENDED = (StateType.COMPLETED, StateType.FAILED, StateType.CRASHED, StateType.CANCELLED)


def _own_queue() -> str | None:
    """The work queue of the deployed run that this process carries out: its chains go to the same machines."""
    above = flow_run.root_flow_run_id
    if not above:
        return None
    with get_client(sync_client=True) as client:
        return client.read_flow_run(UUID(str(above))).work_queue_name


def search_deployed(session: Session, tags: list[str]) -> RunResult:
    """The search of a prepared run, its chains as deployed flow runs."""
    with DeployedExecutor(session.ctx, tags) as executor:
        return session.search(executor)


Search = Callable[[Session], RunResult]
