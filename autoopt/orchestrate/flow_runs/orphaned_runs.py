"""Flow runs whose process died: Prefect shows them as Running until somebody closes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from autoopt.owner import is_known_dead
from autoopt.store import EventRecord, Store

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import State

BEGUN = "flow run"
"""Kind of the events that record a flow run, its run and its process."""
CLOSED = "flow run closed"
"""Kind of the events that record that somebody closed the flow run of a dead process."""
PAGE_ROWS = 200
"""The largest page that a Prefect server returns."""

Row = TypeVar("Row")


def record_flow_run(store: Store, run: str, flow_run: str) -> None:
    """Record the flow run in which this process executes `run`."""
    store.events.add(EventRecord(kind=BEGUN, run=run, subject=flow_run, data={"owner": store.owner}))


def orphaned_runs(store: Store, run: str | None = None) -> dict[str, str]:
    """The flow runs, of one run or of all, whose process has ended and that nobody has closed: flow run -> run."""
    closed = {event.subject for event in store.events.all(run=run, kind=CLOSED)}
    orphans = {}
    for event in store.events.all(run=run, kind=BEGUN):
        if event.subject not in closed and is_known_dead(str(event.data.get("owner", ""))):
            orphans[event.subject] = str(event.run)
    return orphans


def close_orphans(store: Store, run: str | None = None) -> int:
    """Mark orphaned flow runs as crashed, with their sub-flows and trials; returns the number of flow runs.

    Prefect's API has to be available. Flow runs that it does not know (another server had them) stay open.
    """
    orphans = orphaned_runs(store, run)
    if not orphans:
        return 0
    from prefect.client.orchestration import get_client

    total = 0
    with get_client(sync_client=True) as client:
        for flow_run, owner_run in orphans.items():
            count = _crash(client, UUID(flow_run))
            if count is not None:
                total += count
                store.events.add(EventRecord(kind=CLOSED, run=owner_run, subject=flow_run))
    return total


def _crash(client: SyncPrefectClient, flow_run: UUID) -> int | None:
    """Mark a flow run and all below it that have not ended as crashed.

    Returns:
        The number of flow runs; None if the server does not know the flow run.
    """
    from prefect.client.schemas import filters
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    try:
        root = client.read_flow_run(flow_run)
    except ObjectNotFound:
        return None
    state: State[None] = Crashed(message="its process died; the store has its finished work")
    below = filters.FlowRunFilter(parent_flow_run_id=filters.FlowRunFilterParentFlowRunId(any_=[flow_run]))
    inside = filters.FlowRunFilter(id=filters.FlowRunFilterId(any_=[flow_run]))

    def read_children(offset: int) -> list[UUID]:
        rows = client.read_flow_runs(flow_run_filter=below, limit=PAGE_ROWS, offset=offset)
        return [row.id for row in rows]

    count = 0
    for child in list(_all_rows(read_children)):
        count += _crash(client, child) or 0
    task_runs = _all_rows(lambda offset: client.read_task_runs(flow_run_filter=inside, limit=PAGE_ROWS, offset=offset))
    for task_run in list(task_runs):
        if not task_run.state or not task_run.state.is_final():
            client.set_task_run_state(task_run.id, state, force=True)
    if root.state and root.state.is_final():
        return count
    client.set_flow_run_state(flow_run, state, force=True)
    return count + 1


def _all_rows(read: Callable[[int], list[Row]]) -> Iterator[Row]:
    """Read page after page; `read` takes an offset."""
    offset = 0
    while rows := read(offset):
        yield from rows
        offset += len(rows)
