"""The trials of a run executed by deployed runs of `tune_chain`, whose pages have buttons of their own.

Processes share nothing but the store: a chain's flow run claims the trials that it finds there, on any machine that
reaches the store. It ends when it has had none for a while, so that chains without trials hold no place of others, and
is started again for the next one.
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.runtime import flow_run
from prefect.states import Cancelling

from autoopt.engine.run.executor import Work
from autoopt.engine.run.join import JoinedRun
from autoopt.engine.run.session import Session
from autoopt.engine.work.context import Work as CountedWork
from autoopt.errors import InputError
from autoopt.orchestrate.executor import Job
from autoopt.orchestrate.names import plain, tags_of
from autoopt.outcome import Outcome
from autoopt.results import Trial
from autoopt.store import EvaluationRecord, PassRunRecord

IDLE_SECONDS: Final = 15.0
"""A chain's flow run waits this long for a further trial: about as long as a new one takes to start."""
POLL_SECONDS: Final = 0.5
LATE_SECONDS: Final = 30.0
"""Time after the run's deadline in which a chain delivers what it is finishing."""


def claimed_jobs(joined: JoinedRun, chain: str) -> Iterator[Job]:
    """Claim the trials of a chain one after the other, until none has come for a while or the run has ended."""
    idle_since = time.monotonic()
    while time.monotonic() - idle_since < IDLE_SECONDS:
        trial = joined.claim_trial(chain)
        if trial is None:
            if not joined.is_running:
                return
            time.sleep(POLL_SECONDS)
            continue
        yield Job(trial.number, partial(joined.execute, trial))
        idle_since = time.monotonic()


def _chain_deployment() -> str:
    """The deployment of `tune_chain` beside that of the current run: `autoopt serve` gives them one name."""
    with get_client(sync_client=True) as client:
        root = client.read_flow_run(UUID(str(flow_run.root_flow_run_id)))
        if root.deployment_id is None:
            raise InputError("deployed chains need a deployed run", remedy="start it in 'autoopt serve --chains N'")
        return f"tune_chain/{client.read_deployment(root.deployment_id).name}"


class DeployedExecutor:
    """An `Executor` whose trials are executed by deployed runs of `tune_chain`, below the current flow run.

    A context manager: an error that leaves the block cancels the flow runs.
    """

    is_local = False
    ahead = 1
    """Meanwhile the process of its chain starts."""

    def __init__(self, session: Session) -> None:
        self._deployment = _chain_deployment()
        self._session = session
        self._ctx = session.ctx
        self._waiting: dict[int, tuple[str, Future[Trial]]] = {}
        self._started: set[str] = set()
        """Chains that have a flow run."""
        self._flow_runs: set[UUID] = set()
        self._counted: set[str] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._collector = threading.Thread(target=self._collect_until_closed, name="collector", daemon=True)

    def __enter__(self) -> DeployedExecutor:
        self._collector.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._collector.join()
        if error is not None:
            self._cancel(*self._flow_runs)

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[Trial]:
        future: Future[Trial] = Future()
        with self._lock:
            self._waiting[number] = (chain, future)
            if chain not in self._started:
                self._started.add(chain)
                # The flow run is to be below that of this thread, which Prefect keeps in a context variable.
                context = contextvars.copy_context()
                run = threading.Thread(target=context.run, args=(self._run_chain, chain, name), daemon=True)
                run.start()
        return future

    def close(self, chain: str) -> None:
        """Do nothing: the chain's flow run ends by itself."""

    def _run_chain(self, chain: str, name: str) -> None:
        """Start flow runs of a chain for as long as it has trials."""
        try:
            while self._has_trials(chain):
                ended = self._run_once(chain, name)
                self._collect()
                if ended.state is None or not ended.state.is_completed():
                    self._give_up(chain, ended)
        except Exception as error:  # ends the search
            with self._lock:
                for number, (of, future) in list(self._waiting.items()):
                    if of == chain:
                        del self._waiting[number]
                        future.set_exception(error)

    def _has_trials(self, chain: str) -> bool:
        with self._lock:
            if any(of == chain for of, _ in self._waiting.values()):
                return True
            self._started.discard(chain)
            return False

    def _run_once(self, chain: str, name: str) -> FlowRun:
        """Run the deployment until it ends, or until the run's time is over."""
        remaining = self._ctx.attempt.remaining()
        # Typed as a coroutine, but in a thread without an event loop it returns the flow run.
        created: Any = run_deployment(
            self._deployment,
            parameters={"run": self._ctx.run, "chain": chain},
            flow_run_name=plain(name),
            tags=[*tags_of(self._session), f"chain:{chain}"],
            timeout=0,
        )
        self._flow_runs.add(created.id)
        until = time.monotonic() + max(0.0, remaining) + LATE_SECONDS if math.isfinite(remaining) else math.inf
        with get_client(sync_client=True) as client:
            while True:
                ended = client.read_flow_run(created.id)
                if ended.state is not None and ended.state.is_final():
                    self._flow_runs.discard(created.id)
                    return ended
                if time.monotonic() > until:
                    self._cancel(created.id)
                    return ended
                time.sleep(POLL_SECONDS)

    def _give_up(self, chain: str, ended: FlowRun) -> None:
        """Finish the trials of a chain whose flow run did not end as completed; a retry executes them again."""
        outcome, message = Outcome.CRASHED, f"the flow run of the chain ended {ended.state_name}"
        if ended.state is None or not ended.state.is_final():
            outcome, message = Outcome.TIMEOUT, "no worker finished it in the run's time"
        store = self._ctx.store
        with self._lock:
            numbers = [number for number, (of, _) in self._waiting.items() if of == chain]
        for number in numbers:
            row = store.trials.get(self._ctx.run, number)
            if store.claims.acquire("trial", row.claim):
                store.trials.finish(replace(row, status="done", outcome=outcome, message=message, transient=True))
        self._collect()

    def _collect_until_closed(self) -> None:
        while not self._closed.wait(POLL_SECONDS):
            self._collect()

    def _collect(self) -> None:
        """Hand over the results of finished trials."""
        with self._lock:
            if not self._waiting:
                return
            for row in self._ctx.store.trials.all(self._ctx.run):
                if row.number in self._waiting and row.status == "done":
                    _, future = self._waiting.pop(row.number)
                    self._count_work("pass_runs", self._ctx.store.results.pass_runs(row.pass_runs))
                    self._count_work("evaluations", self._ctx.store.results.evaluations(row.evaluations))
                    future.set_result(row)

    def _count_work(self, kind: CountedWork, records: Mapping[str, PassRunRecord | EvaluationRecord]) -> None:
        """Count another process's work as executed by the first trial of the run that executed it, else as reused."""
        for key, record in records.items():
            if record.run == self._ctx.run and key not in self._counted:
                self._ctx.attempt.counts.add_executed(kind)
            else:
                self._ctx.attempt.counts.add_reused(kind)
            self._counted.add(key)

    @staticmethod
    def _cancel(*flow_runs: UUID) -> None:
        # A server that is away does not matter: the flow runs see the end of the run in the store.
        with suppress(Exception), get_client(sync_client=True) as client:
            for flow_run in flow_runs:
                client.set_flow_run_state(flow_run, Cancelling(message="the model's run has ended"))
