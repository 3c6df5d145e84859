"""Flow runs whose machine or process died: some fell silent after sending heartbeats, others never began."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State, StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import EventTrigger

FINAL_STATES: Final = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
SUSPENDED: Final = "autoopt.flow-run.suspended"
"""Event by which the process of a suspended flow run says that no heartbeat follows."""
AUTOMATION = "autoopt: crash flow runs without a heartbeat"
CONTINUATION = "autoopt: continue crashed sweeps"
RETRY = "AwaitingRetry"
"""Name of the state that the Retry button sets."""
CONTINUED = "continued after its process died"
"""Message of the state that the automation sets."""
CONTINUATION_SECONDS = 30
"""Time between a crash and the continuation."""
MAX_CONTINUATIONS = 3
"""A sweep that dies more often fails, so that somebody looks at it."""
SILENT_SECONDS = 90
"""A flow run without a heartbeat for this long counts as crashed."""
PENDING_SECONDS = 120.0
"""A flow run that a worker took and did not begin for this long counts as crashed; it sends no heartbeats yet."""
CONTAINER_SECONDS = 1200.0
"""The same in pools that start containers, whose images may have to be pulled first."""


def environment() -> dict[str, str]:
    """Variables for the processes of flow runs: send heartbeats, and wait a quarter of an hour for what is away.

    With at most 10 s between the requests of Prefect's clients (`outages.bound_waits`), 95 of them take 15 minutes. A
    server whose database is away answers with 500, which would end a worker with its flow runs within a minute.
    """
    defaults = {
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_CLIENT_MAX_RETRIES": "95",
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
        "AUTOOPT_PATIENCE": "900",
    }
    return {name: os.environ.get(name, value) for name, value in defaults.items()}


def ensure_automations() -> None:
    """Have the server mark a flow run as crashed that falls silent, and continue a sweep that has crashed."""
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState

    ends = [state.capitalize() for state in FINAL_STATES]
    # A process sends another heartbeat or two before it notices that it is suspended.
    silence = absence_trigger("heartbeat", ["heartbeat", *ends, "Paused", "Suspended"], SILENT_SECONDS)
    silence.expect.add(SUSPENDED)
    crash = ChangeFlowRunState(
        name=None, force=False, state=StateType.CRASHED, message=f"no heartbeat for {SILENT_SECONDS} s"
    )
    _create(AUTOMATION, "Its process died", silence, crash)
    # The runner and the worker both report a death: one continuation, once neither nor anybody else does any more.
    later = ("AwaitingRetry", "Scheduled", "Pending", "Running", "Completed", "Failed", "Cancelled")
    sweep = {"prefect.resource.role": "flow", "prefect.resource.name": "nightly_sweep"}
    death = absence_trigger("Crashed", later, CONTINUATION_SECONDS, sweep)
    retry = ChangeFlowRunState(name=RETRY, force=False, state=StateType.SCHEDULED, message=CONTINUED)
    _create(CONTINUATION, "What is finished is in the store", death, retry)


def absence_trigger(
    after: str, expect: Iterable[str], seconds: int, related: Mapping[str, str] | None = None
) -> EventTrigger:
    """Fire for a flow run that has none of the expected events within some seconds after another event.

    `after` and `expect` are names such as `Crashed`. The flow run has to belong to the `related` resource, if any.
    """
    from prefect.events.schemas.automations import EventTrigger, Posture

    match_related: Any = related or {}  # Prefect's ResourceSpecification
    return EventTrigger(
        after={f"prefect.flow-run.{after}"},
        expect={f"prefect.flow-run.{name}" for name in expect},
        match={"prefect.resource.id": ["prefect.flow-run.*"]},
        match_related=match_related,
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=seconds),
    )


def announce_suspension(flow_run: str) -> None:
    """Say that the process of a suspended flow run ends, so that it does not count as dead."""
    from prefect.events import emit_event

    emit_event(SUSPENDED, {"prefect.resource.id": f"prefect.flow-run.{flow_run}"})


def continued_too_often(states: Sequence[State[Any]]) -> bool:
    """True if a flow run was continued `MAX_CONTINUATIONS` times since somebody started or retried it.

    The states are in order, the oldest first.
    """
    count = 0
    for state in states:
        if state.message == CONTINUED:
            count += 1
        elif state.name == RETRY:
            count = 0
    return count >= MAX_CONTINUATIONS


def _create(name: str, description: str, trigger: EventTrigger, action: ChangeFlowRunState) -> None:
    """Create an automation. One of this name stays as it is, except that it expects all events that `trigger` does."""
    from prefect.automations import Automation

    # Its methods are typed as coroutines, but run at once outside of an event loop.
    automations: Any = Automation
    try:
        existing = automations.read(name=name)
    except ValueError:
        automations(name=name, description=description, trigger=trigger, actions=[action]).create()
        return
    expected = getattr(existing.trigger, "expect", trigger.expect)  # users can put another kind of trigger there
    if not trigger.expect <= expected:
        expected |= trigger.expect
        existing.update()


class WatchedFlowRun:
    """A deployed flow run that this process waits for; `client` asks for it."""

    def __init__(self, flow_run: UUID, client: SyncPrefectClient) -> None:
        self.id = flow_run
        self._client = client
        self.lost = False
        """True if a worker took it and never began it."""
        self.message = ""
        """Prefect's message on the last state: of a failed flow run, the exception that ended it."""
        self._pending_since: float | None = None

    def state(self) -> StateType | None:
        """Ask for its state, as `state_of` returns it.

        Raises:
            httpx.HTTPError, PrefectException: as Prefect's client.
        """
        from prefect.exceptions import ObjectNotFound

        try:
            flow_run = self._client.read_flow_run(self.id)
        except ObjectNotFound:
            return self.state_of(None)
        return self.state_of(flow_run)

    def state_of(self, flow_run: FlowRun | None) -> StateType | None:
        """Its state in what the server has of it; one that was lost or deleted (None) has crashed.

        Raises:
            httpx.HTTPError, PrefectException: as Prefect's client.
        """
        from prefect.client.schemas.objects import StateType
        from prefect.states import Crashed

        if flow_run is None:
            return StateType.CRASHED
        if flow_run.state is not None:
            self.message = flow_run.state.message or ""
        if flow_run.state_type is not StateType.PENDING:
            self._pending_since = None
            return flow_run.state_type
        now = time.monotonic()
        self._pending_since = self._pending_since or now
        waited = now - self._pending_since
        limit = PENDING_SECONDS
        pool = flow_run.work_pool_name
        if waited > limit and pool is not None and self._client.read_work_pool(pool).type != "process":
            limit = CONTAINER_SECONDS
        if waited > limit:
            message = f"a worker took it and did not begin it in {waited:.0f} s"
            self._client.set_flow_run_state(self.id, Crashed(message=message), force=True)
            self.lost = True
            return StateType.CRASHED
        return StateType.PENDING
