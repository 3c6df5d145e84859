"""Hosts behind Prefect work pools: each call is a deployed flow run that a worker of the pool executes.

The files that a call reads and creates travel through an exchange folder (`autoopt.workers.exchange`) beside the
artifacts; Prefect is asked only for states. A `docker` host is a work pool of type docker with the image as job
variable.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoopt.errors import InputError, SystemFailure, one_line
from autoopt.orchestrate.server import heartbeats
from autoopt.orchestrate.server.connection import use_server, without_userinfo
from autoopt.orchestrate.server.heartbeats import FINAL_STATES, WatchedFlowRun
from autoopt.orchestrate.server.outages import Outage, client_retries
from autoopt.outcome import Outcome
from autoopt.settings import settings
from autoopt.spec.targets import HostSpec
from autoopt.workers import CallResult
from autoopt.workers.exchange import CallBegun, Exchange, RemoteAnswer, RemoteCall, pack, unpack_answer
from autoopt.workers.hosts import CallLimits, FunctionHost
from autoopt.workers.process import Cancelled

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import StateType

ENTRY_POINT = "flows.remote_call.remote_call"
"""Module path of the flow for workers: the same in all versions, as machines of a pool are not upgraded together."""
DOCKER_POOL = "autoopt-docker"
"""Default work pool of `docker` hosts."""
POLL_SECONDS = 0.5
START_SECONDS = 300.0
"""A flow run may wait this long for a worker of the pool."""
MAX_ATTEMPTS = 3
"""A call is given up after this many flow runs whose workers died before they began."""
WAIT_SECONDS = 3600.0
"""A call may wait this long on its machine, for its files and for other work there to end."""
GRACE_SECONDS = 120.0
"""A call that has begun may take this much longer than its limit: to start its process and to upload its files."""


class PrefectHost(FunctionHost):
    """A host whose calls are flow runs of a work pool. Thread-safe.

    Raises:
        InputError: no permanent Prefect server is known, or it has no such pool.
    """

    remote = True

    def __init__(self, host: HostSpec, home: Path) -> None:
        self.pool = host.work_pool or DOCKER_POOL
        self.name = f"work pool {self.pool}"
        url = use_server(home, self.name)
        self._queue = host.queue or None
        self._variables: dict[str, object] = {"env": heartbeats.environment()}
        if host.image:
            self._variables["image"] = host.image
        shared = settings().artifacts_url
        self._place = f"exchange/{uuid.uuid4().hex[:12]}"
        self._folder = None
        if not shared:
            self._folder = str(home)
        self._exchange = Exchange(f"{shared or home}/{self._place}")
        self._closed = threading.Event()
        self._deployment = self._deploy(without_userinfo(url))

    def _deploy(self, url: str) -> uuid.UUID:
        """Create or update the deployment of `remote_call` in the pool."""
        import httpx
        from prefect.client.orchestration import get_client
        from prefect.deployments.runner import RunnerDeployment
        from prefect.exceptions import ObjectNotFound
        from prefect.types.entrypoint import EntrypointType

        from autoopt.orchestrate.hosts.remote_call import remote_call

        try:
            with get_client(sync_client=True) as client:
                client.read_work_pool(self.pool)
            # Typed as a coroutine, but outside of an event loop it returns the deployment.
            deployment: Any = RunnerDeployment.from_flow(
                remote_call, name=self.pool, work_pool_name=self.pool, entrypoint_type=EntrypointType.MODULE_PATH
            )
            deployment.entrypoint = ENTRY_POINT
            identifier = uuid.UUID(str(deployment.apply()))
            # Without it, a call on a machine that died would last until its limit.
            heartbeats.ensure_automations()
            return identifier
        except ObjectNotFound:
            remedy = f"create it with 'prefect work-pool create {self.pool} --type process' (or docker), start a worker"
            raise InputError(f"the Prefect server has no {self.name}", where=url, remedy=remedy) from None
        except httpx.TransportError as error:
            raise SystemFailure(f"the Prefect server does not answer ({error})", where=url) from None

    def call(self, function: str, payload: dict[str, Any], limits: CallLimits) -> CallResult:
        """Run a worker function on the pool's machine, as `WorkerPool.call` does here.

        Raises:
            Cancelled: the host was closed.
            SystemFailure: no worker takes the call, its machine never gets to it, the Prefect server stays away, or
                files cannot be exchanged.
        """
        call_id = uuid.uuid4().hex
        call = RemoteCall(function, pack(payload, self._exchange), limits.seconds, limits.memory, limits.exclusive)
        self._exchange.write(call_id, call)
        started = time.monotonic()
        state, cause = self._execute(call_id, limits.seconds)
        answer = self._exchange.read(call_id, RemoteAnswer)
        if answer is None:
            return unanswered(state, cause, time.monotonic() - started, limits.seconds)
        value: Any = unpack_answer(answer, str(payload.get("output", "")), self._exchange)
        if function.endswith(":runtime") and isinstance(value, dict):
            value = {**value, **answer.machine}
        return CallResult(
            answer.outcome,
            value,
            answer.message,
            answer.seconds,
            answer.details,
            error=answer.error,
            transient=answer.transient,
        )

    def _execute(self, call_id: str, timeout: float | None) -> tuple[StateType | None, str]:
        """Run a call to its end; returns the final state of its last flow run, and Prefect's message on it.

        The state is None if the call was stopped at the time limit.
        """
        from prefect.client.orchestration import get_client

        outage = Outage()
        limit = (timeout or math.inf) + GRACE_SECONDS
        # With settings of its own the client is a new one, also inside a flow run.
        with client_retries(0), get_client(sync_client=True, httpx_settings={}) as client:
            for attempt in range(1, MAX_ATTEMPTS + 1):
                run, state = self._run_attempt(client, call_id, attempt, outage, limit)
                # While the server was away, it did not receive the heartbeats of a flow run that may be fine.
                silenced = state is not None and state.value == "CRASHED" and outage.occurred
                if not run.lost and not silenced:
                    return state, run.message
        if run.lost:
            message = f"workers took a call {MAX_ATTEMPTS} times and never began it"
            raise SystemFailure(message, where=self.name, remedy="see their logs")
        return state, run.message

    def _run_attempt(
        self, client: SyncPrefectClient, call_id: str, attempt: int, outage: Outage, limit: float
    ) -> tuple[WatchedFlowRun, StateType | None]:
        """Submit a flow run and wait for its end; its state is None if it was stopped at the time limit."""
        clock = _StageClock(limit)
        run: WatchedFlowRun | None = None
        while True:
            state = None
            # Holds back the errors of a server that is away; `state` stays None then.
            with outage:
                run = run or self._submit(client, call_id, attempt)
                state = run.state()
            if run is not None and state is not None:
                if state.value in FINAL_STATES:
                    return run, state
                clock.enter(self._stage(call_id, state, clock.stage))
                if clock.exceeded():
                    self._cancel(client, run)
                    if clock.stage is _Stage.BEGUN:
                        return run, None
                    raise self._stuck(clock.stage)
            else:
                clock.skip_outage()
            if self._closed.is_set():
                self._cancel(client, run)
                raise Cancelled("cancelled")
            time.sleep(outage.poll_seconds(POLL_SECONDS))

    def _stage(self, call_id: str, state: StateType, stage: _Stage) -> _Stage:
        if state.value == "SCHEDULED":
            return _Stage.SCHEDULED
        if state.value != "RUNNING":
            return _Stage.STARTING
        if stage is _Stage.BEGUN or self._exchange.read(call_id, CallBegun) is not None:
            return _Stage.BEGUN
        return _Stage.WAITING

    def _stuck(self, stage: _Stage) -> SystemFailure:
        if stage is _Stage.SCHEDULED:
            message = f"no worker took a call in {START_SECONDS:.0f} s"
            remedy = f"start one with 'prefect worker start --pool {self.pool}'"
        else:
            message = f"a call waited {WAIT_SECONDS:.0f} s on its machine, for files or for other work there to end"
            remedy = "check what runs there, or add a machine to the pool"
        return SystemFailure(message, where=self.name, remedy=remedy)

    def _submit(self, client: SyncPrefectClient, call_id: str, attempt: int) -> WatchedFlowRun:
        name = f"call {call_id[:8]}"
        if attempt > 1:
            name += f" · attempt {attempt}"
        flow_run = client.create_flow_run_from_deployment(
            self._deployment,
            parameters={"call": call_id, "place": self._place, "folder": self._folder},
            name=name,
            work_queue_name=self._queue,
            job_variables=self._variables,
            # The request is repeated if the server's answer was lost.
            idempotency_key=f"{call_id}/{attempt}",
        )
        return WatchedFlowRun(flow_run.id, client)

    @staticmethod
    def _cancel(client: SyncPrefectClient, run: WatchedFlowRun | None) -> None:
        from prefect.states import Cancelling

        if run is None:
            return
        # Best effort: the server may be away.
        with suppress(Exception):
            client.set_flow_run_state(run.id, Cancelling(message="the caller no longer waits"))

    def close(self) -> None:
        """End the calls that are waiting, and remove the exchanged files."""
        self._closed.set()
        with suppress(SystemFailure):
            self._exchange.clear()


def unanswered(state: StateType | None, cause: str, seconds: float, limit: float | None) -> CallResult:
    """The result of a call whose flow run left no answer.

    `state` is the final one of the flow run, None if it was stopped at the time limit; `cause` is Prefect's message on
    it.
    """
    if state is None:
        return CallResult(Outcome.TIMEOUT, message=f"more than {limit or 0:.0f} s", seconds=seconds)
    message = f"the flow run of the call ended {state.value.lower()}"
    if cause:
        message = f"{message}: {one_line(cause)}"
    return CallResult(Outcome.CRASHED, message=message, seconds=seconds, transient=True)


class _Stage(StrEnum):
    SCHEDULED = "waits for a worker"
    STARTING = "a worker starts its process"
    WAITING = "waits on its machine"
    BEGUN = "begun"


class _StageClock:
    """Time that a call has spent in its stage, and the limit of each stage."""

    def __init__(self, seconds: float) -> None:
        self._limits = {
            _Stage.SCHEDULED: START_SECONDS,
            _Stage.STARTING: math.inf,  # `WatchedFlowRun` ends a flow run that does not start
            _Stage.WAITING: WAIT_SECONDS,
            _Stage.BEGUN: seconds,
        }
        self.stage = _Stage.SCHEDULED
        self._since = time.monotonic()

    def enter(self, stage: _Stage) -> None:
        if stage is not self.stage:
            self.stage = stage
            self._since = time.monotonic()

    def skip_outage(self) -> None:
        """Do not count the time in which no worker can hear of the call."""
        if self.stage is _Stage.SCHEDULED:
            self._since = time.monotonic()

    def exceeded(self) -> bool:
        return time.monotonic() - self._since > self._limits[self.stage]
