"""Hosts behind Prefect work pools: each call is a deployed flow run that a worker of the pool carries out.

What a call reads and makes travels through an exchange folder (see `autoopt.workers.exchange`) beside the artifacts; of
Prefect only states are asked. The worker runs the same function in a killable process of its own, behind the
measurement gate of its machine. A `docker` host is a work pool of type docker with the image as job variable.
"""

from __future__ import annotations

import math
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from autoopt.errors import InputError, SystemFailure
from autoopt.orchestrate.server import heartbeats
from autoopt.orchestrate.server.connection import DEFAULTS, api_url, check_password, without_userinfo
from autoopt.orchestrate.server.heartbeats import Watched
from autoopt.orchestrate.server.outages import ASK_SECONDS, Outage, asking
from autoopt.outcome import Outcome
from autoopt.settings import settings
from autoopt.spec.targets import HostSpec
from autoopt.workers import CallResult
from autoopt.workers.exchange import Exchange, pack, unpack_answer
from autoopt.workers.hosts import Host
from autoopt.workers.process import Cancelled

ENTRY_POINT = "flows.remote_call.remote_call"
"""Where workers find the flow: one address for all versions, as machines of a pool are not renewed at the same time."""
DOCKER_POOL = "autoopt-docker"
"""The work pool of `docker` hosts that name none."""
POLL_SECONDS = 0.5
START_SECONDS = 300.0
"""How long a flow run may wait for a worker of the pool."""
ATTEMPTS = 3
"""How many flow runs of a call may be lost, as their workers died before they began."""
WAIT_SECONDS = 3600.0
"""How long a call may wait on its machine, for its files and until the work there lets it begin."""
GRACE_SECONDS = 120.0
"""How much longer than its limit a call may take once it has begun: the start of its process, what it gives back."""
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class PrefectHost(Host):
    """A host whose calls are flow runs of a work pool. Thread-safe."""

    remote = True

    def __init__(self, host: HostSpec, home: Path) -> None:
        """
        Raises:
            InputError: no Prefect server that stays is known, or it has no such pool.
        """
        url = api_url(home)
        self.pool = host.work_pool or DOCKER_POOL
        self.name = f"work pool {self.pool}"
        if url is None:
            remedy = "start 'autoopt serve' in this folder, or set PREFECT_API_URL"
            raise InputError(f"{self.name} needs a Prefect server that stays", remedy=remedy)
        os.environ["PREFECT_API_URL"] = url  # before Prefect is first imported, which reads its settings
        for name, value in DEFAULTS.items():
            os.environ.setdefault(name, value)
        check_password(url)
        self._queue = host.queue or None
        self._variables = {"env": heartbeats.environment(), **({"image": host.image} if host.image else {})}
        shared = settings().artifacts_url
        self._place = f"exchange/{uuid.uuid4().hex[:12]}"
        self._folder = None if shared else str(home)
        self._exchange = Exchange(f"{shared or home}/{self._place}")
        self._over = threading.Event()
        self._deployment = self._deployed(without_userinfo(url))

    def _deployed(self, url: str) -> uuid.UUID:
        """The deployment of the calls' flow into the pool, made or renewed."""
        import httpx
        from prefect.client.orchestration import get_client
        from prefect.deployments.runner import RunnerDeployment
        from prefect.exceptions import ObjectNotFound
        from prefect.types.entrypoint import EntrypointType

        from autoopt.orchestrate.hosts.remote_call import remote_call

        try:
            with get_client(sync_client=True) as client:
                client.read_work_pool(self.pool)
            made: Any = RunnerDeployment.from_flow(
                remote_call, name=self.pool, work_pool_name=self.pool, entrypoint_type=EntrypointType.MODULE_PATH
            )
            made.entrypoint = ENTRY_POINT
            found = uuid.UUID(str(made.apply()))
            heartbeats.ensure_automation()  # else a call on a machine that died would be waited for until its limit
            return found
        except ObjectNotFound:
            remedy = f"'prefect work-pool create {self.pool} --type process' (or docker) makes it; then start a worker"
            raise InputError(f"the Prefect server has no {self.name}", where=url, remedy=remedy) from None
        except httpx.TransportError as error:
            raise SystemFailure(f"the Prefect server does not answer ({error})", where=url) from None

    def call(
        self,
        function: str,
        payload: dict[str, Any],
        timeout: float | None = 60.0,
        memory: int | None = None,
        cancel: threading.Event | None = None,
        alone: bool = False,
    ) -> CallResult:
        """As `WorkerPool.call`, on the pool's machine; `alone`: nothing else of autoopt runs there meanwhile.

        Raises:
            Cancelled: `cancel` was set, or the host was closed.
            SystemFailure: no worker takes the call, its machine never comes to it, the Prefect server stays away, or
                files cannot be exchanged.
        """
        call = uuid.uuid4().hex
        asked = {"call": function, "payload": pack(payload, self._exchange), "seconds": timeout, "memory": memory}
        self._exchange.write(call, "asked.json", {**asked, "alone": alone})
        began = time.monotonic()
        said = self._carried_out(call, timeout, lambda: self._over.is_set() or (cancel is not None and cancel.is_set()))
        answer = self._exchange.read(call, "answer.json")
        if answer is None:
            timed_out = said == "timeout"
            outcome = Outcome.TIMEOUT if timed_out else Outcome.CRASHED
            message = f"more than {timeout:.0f} s" if timed_out and timeout else f"the flow run of the call {said}"
            return CallResult(outcome, message=message, seconds=time.monotonic() - began)
        value = unpack_answer(answer, str(payload.get("output", "")), self._exchange)
        if function.endswith(":runtime") and isinstance(value, dict):
            value = {**value, **answer["machine"]}
        return CallResult(Outcome(answer["outcome"]), value, answer["message"], answer["seconds"], answer["details"])

    def _carried_out(self, call: str, timeout: float | None, cancelled: Callable[[], bool]) -> str:
        """Submit the call's flow run and wait for its end; how it ended."""
        outage, stay = Outage(), _Stay((timeout or math.inf) + GRACE_SECONDS)
        run, attempt = None, 1
        with asking():
            while True:
                state = ""
                with outage:
                    run = run or self._submitted(call, attempt)
                    state = str(getattr(run.state(), "value", ""))
                if run is not None and state in ENDED:
                    silenced = state == "CRASHED" and outage.seen  # its heartbeats may have found no server
                    if not run.lost and (not silenced or attempt == ATTEMPTS):
                        return f"ended {state.lower()}"
                    if attempt == ATTEMPTS:
                        said = f"workers took a call {ATTEMPTS} times and did not begin it"
                        raise SystemFailure(said, where=self.name, remedy="their logs say why")
                    run, attempt, state = None, attempt + 1, "SCHEDULED"
                if state == "RUNNING" and (stay.at == "BEGUN" or self._exchange.read(call, "begun.json") is not None):
                    state = "BEGUN"
                if cancelled():
                    self._cancel(run)
                    raise Cancelled("cancelled")
                if stay.too_long(state):
                    self._cancel(run)
                    if stay.at == "BEGUN":
                        return "timeout"
                    raise self._stuck(stay.at)
                time.sleep(ASK_SECONDS if outage.going_on else POLL_SECONDS)

    def _stuck(self, at: str) -> SystemFailure:
        if at == "SCHEDULED":
            said = f"no worker took a call in {START_SECONDS:.0f} s"
            remedy = f"start one there: 'prefect worker start --pool {self.pool}'"
        else:
            said = f"a call waited {WAIT_SECONDS:.0f} s on its machine, for files or for other work there to end"
            remedy = "see what works there, or add a machine to the pool"
        return SystemFailure(said, where=self.name, remedy=remedy)

    def _submitted(self, call: str, attempt: int) -> Watched:
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True, httpx_settings={}) as client:
            made = client.create_flow_run_from_deployment(
                self._deployment,
                parameters={"call": call, "place": self._place, "folder": self._folder},
                name=f"call {call[:8]}" + (f" · attempt {attempt}" if attempt > 1 else ""),
                work_queue_name=self._queue,
                job_variables=self._variables,
                idempotency_key=f"{call}/{attempt}",  # asked for twice where the server's answer was lost
            )
            return Watched(made.id)

    @staticmethod
    def _cancel(run: Watched | None) -> None:
        from prefect.client.orchestration import get_client
        from prefect.states import Cancelling

        if run is None:
            return
        with suppress(Exception), get_client(sync_client=True, httpx_settings={}) as client:  # it may be away
            client.set_flow_run_state(run.id, Cancelling(message="the caller waits no longer"))

    def close(self) -> None:
        """End the calls that are waiting, and remove what was exchanged."""
        self._over.set()
        with suppress(SystemFailure):
            self._exchange.clear()


class _Stay:
    """How long a call has been where it is: waiting for a worker, waiting on its machine, begun."""

    def __init__(self, seconds: float) -> None:
        self._limits = {"SCHEDULED": START_SECONDS, "RUNNING": WAIT_SECONDS, "BEGUN": seconds}
        self.at, self._since = "SCHEDULED", time.monotonic()

    def too_long(self, state: str) -> bool:
        """Told where it is now; empty where nobody knows."""
        now = time.monotonic()
        if state in self._limits and state != self.at:
            self.at, self._since = state, now
        if self.at == "SCHEDULED" and state != "SCHEDULED":  # a worker starts it, or cannot hear of it
            self._since = now
        return bool(state) and now - self._since > self._limits[self.at]
