"""Places at a worker: a chain's run with nothing to do keeps its process warm, until another run wants its place."""

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
from prefect.exceptions import PrefectException

from autoopt.orchestrate.server.outages import client_retries
from autoopt.store import EventRecord, Store

GAVE_WAY = "gave way"
"""Kind of the events that say for which flow run another one ended, so that one place is made and not several."""
LATE_SECONDS = 2.0
"""A flow run that no worker has taken for so long finds no place."""
ASK_SECONDS = (1.5, 2.5)
"""How often the server is asked: at random between these, so that runs that wait ask one after the other."""


class Place:
    """That of the flow run under way. A context manager, for its connection to the server."""

    def __init__(self, store: Store, run: str, flow_run: UUID) -> None:
        """`run`: the store's id of the run that the flow run is part of."""
        self._store, self._run, self._flow_run = store, run, flow_run
        self._queue: UUID | None = None
        self._next = 0.0
        self._client = get_client(sync_client=True, httpx_settings={})  # one of our own, also in a flow run

    def __enter__(self) -> Place:
        self._client.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._client.__exit__(*error)

    def wanted(self) -> bool:
        """Whether to make room now, for a flow run that waits in the same work queue. Asks the server now and then; one
        that does not answer wants nothing."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + random.uniform(*ASK_SECONDS)
        try:
            with client_retries(0):
                waiting = self._waiting()
        except (httpx.HTTPError, PrefectException):
            return False
        for flow_run in map(str, waiting):
            if not self._store.events.all(kind=GAVE_WAY, subject=flow_run):
                self._store.events.add(EventRecord(kind=GAVE_WAY, run=self._run, subject=flow_run))
                return True
        return False

    def _waiting(self) -> list[UUID]:
        """The flow runs that no worker takes."""
        self._queue = self._queue or self._client.read_flow_run(self._flow_run).work_queue_id
        if self._queue is None:
            return []
        before: Any = datetime.now(UTC) - timedelta(seconds=LATE_SECONDS)
        late = filters.FlowRunFilter(
            state=filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
            expected_start_time=filters.FlowRunFilterExpectedStartTime(before_=before),
        )
        queue = filters.WorkQueueFilter(id=filters.WorkQueueFilterId(any_=[self._queue]))
        return [found.id for found in self._client.read_flow_runs(flow_run_filter=late, work_queue_filter=queue)]
