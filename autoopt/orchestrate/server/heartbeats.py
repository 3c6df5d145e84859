"""Flow runs whose machine or process died: one that sent heartbeats and fell silent, one that was never begun."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from prefect.client.schemas.objects import StateType

ZOMBIES = "autoopt: crash flow runs without a heartbeat"
SILENT_SECONDS = 90
"""Without a heartbeat for so long, a flow run counts as crashed."""
PENDING_SECONDS = 120.0
"""A flow run that a worker took and that has not begun after so long counts as crashed; it sends no heartbeats yet."""
CONTAINER_SECONDS = 1200.0
"""The same where containers are started, whose images may have to be fetched first."""


def environment() -> dict[str, str]:
    """For processes of flow runs: what has them send heartbeats, and wait some 4 minutes for a server that is away."""
    wanted = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", "PREFECT_CLIENT_MAX_RETRIES": "7"}
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def ensure_automation() -> None:
    """A flow run that has begun to send heartbeats and then falls silent is marked as crashed."""
    from prefect.automations import Automation
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import EventTrigger, Posture

    ended = ("Completed", "Failed", "Cancelled", "Crashed")
    trigger = EventTrigger(
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.heartbeat", *(f"prefect.flow-run.{state}" for state in ended)},
        match={"prefect.resource.id": ["prefect.flow-run.*"]},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=SILENT_SECONDS),
    )
    action = ChangeFlowRunState(
        name=None, force=False, state=StateType.CRASHED, message=f"no heartbeat for {SILENT_SECONDS} s"
    )
    automations: Any = Automation  # its methods are typed as coroutines, but are done at once outside of an event loop
    try:
        automations.read(name=ZOMBIES)
    except ValueError:
        automations(name=ZOMBIES, description="Its process died", trigger=trigger, actions=[action]).create()


class Watched:
    """A deployed flow run that somebody waits for."""

    def __init__(self, flow_run: UUID) -> None:
        self.id = flow_run
        self.lost = False
        """Whether a worker took it and never began it."""
        self._pending_since: float | None = None

    def state(self) -> StateType | None:
        """How it is; one that was lost or deleted has crashed. Prefect's own errors come out as they are."""
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.objects import StateType
        from prefect.exceptions import ObjectNotFound
        from prefect.states import Crashed

        with get_client(sync_client=True, httpx_settings={}) as client:  # one of our own, also in a flow run
            try:
                found = client.read_flow_run(self.id)
            except ObjectNotFound:
                return StateType.CRASHED
            if found.state_type is not StateType.PENDING:
                self._pending_since = None
                return found.state_type
            now = time.monotonic()
            self._pending_since = self._pending_since or now
            waited = now - self._pending_since
            if waited > PENDING_SECONDS and waited > _start_seconds(client, found.work_pool_name):
                said = f"a worker took it and did not begin it in {waited:.0f} s"
                client.set_flow_run_state(self.id, Crashed(message=said), force=True)
                self.lost = True
                return StateType.CRASHED
        return StateType.PENDING


def _start_seconds(client: Any, pool: str | None) -> float:
    of_processes = pool is None or client.read_work_pool(pool).type == "process"
    return PENDING_SECONDS if of_processes else CONTAINER_SECONDS
