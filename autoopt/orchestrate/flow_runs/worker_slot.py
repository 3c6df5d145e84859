"""The slot of a flow run at its worker: an idle chain keeps its process warm until another flow run needs the slot."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas import filters
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectException

from autoopt.orchestrate.server.outages import client_retries
from autoopt.store import EventRecord, Store

GAVE_WAY = "gave way"
"""Kind of the events that record for which flow run a slot was released, so that only one is released for it."""
LATE_SECONDS = 4.0
"""A flow run that no worker has taken for this long has found no slot. On a busy machine, a worker takes up to 3 s."""
RENEWAL_SECONDS = 8.0
"""Another slot is released for a flow run that still waits after this time."""
MOST_WAITING = 10
"""Most waiting flow runs to look at: the server needs milliseconds for each, and all idle flow runs ask it."""
CHECK_SECONDS = (0.7, 1.3)
"""Interval of checks, drawn at random between these, so that idle flow runs check one after the other."""


class WorkerSlot:
    """The slot of the current flow run. A context manager, for its connection to the server.

    Idle flow runs agree in the store on who releases a slot.
    """

    def __init__(self, store: Store, run: str, flow_run: UUID) -> None:
        self._store = store
        self._run = run
        self._flow_run = flow_run
        self._queue: UUID | None = None
        self._next_check = 0.0
        # With settings of its own the client is a new one, also inside a flow run.
        self._client = get_client(sync_client=True, httpx_settings={})

    def __enter__(self) -> WorkerSlot:
        self._client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__(None, None, None)

    def is_needed(self) -> bool:
        """True if this flow run should end now to make room for one that waits in the same work queue.

        Asks the server only now and then; False if it does not answer.
        """
        if time.monotonic() < self._next_check:
            return False
        self._next_check = time.monotonic() + random.uniform(*CHECK_SECONDS)
        try:
            with client_retries(0):
                waiting = self._waiting_flow_runs()
        except (httpx.HTTPError, PrefectException):
            return False
        for flow_run in waiting:
            released = self._store.events.all(kind=GAVE_WAY, subject=flow_run)
            # The slot that was released may have gone to another flow run.
            if not released or self._store.clock() - released[-1].time > RENEWAL_SECONDS:
                self._store.events.add(EventRecord(kind=GAVE_WAY, run=self._run, subject=flow_run))
                return True
        return False

    def _waiting_flow_runs(self) -> list[str]:
        """Ids of flow runs that no worker has taken in time: those that are due first, which workers take first."""
        self._queue = self._queue or self._client.read_flow_run(self._flow_run).work_queue_id
        if self._queue is None:
            return []
        due: Any = datetime.now(UTC) - timedelta(seconds=LATE_SECONDS)
        late = filters.FlowRunFilter(
            state=filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
            expected_start_time=filters.FlowRunFilterExpectedStartTime(before_=due),
        )
        queue = filters.WorkQueueFilter(id=filters.WorkQueueFilterId(any_=[self._queue]))
        flow_runs = self._client.read_flow_runs(
            flow_run_filter=late, work_queue_filter=queue, sort=FlowRunSort.EXPECTED_START_TIME_ASC, limit=MOST_WAITING
        )
        return [str(flow_run.id) for flow_run in flow_runs]
