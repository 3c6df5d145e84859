"""Flow runs whose process died: Prefect goes on calling them Running until somebody says what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from autoopt.store import EventRecord, Store
from autoopt.store.owner import is_known_dead

BEGUN, CLOSED = "flow run", "flow run closed"
"""Kinds of the events that say which flow run carried a run out, in which process, and that it was seen to its end."""

PAGE = 200
"""Rows of one answer, as many as a Prefect server gives at most."""


def remember(store: Store, run: str) -> Callable[[str], None]:
    """Notes the flow run that carries `run` out in this process; to be called with the flow run's id."""

    def note(flow_run: str) -> None:
        store.events.add(EventRecord(kind=BEGUN, run=run, subject=flow_run, data={"owner": store.owner}))

    return note


def left_behind(store: Store, run: str | None = None) -> dict[str, str]:
    """Flow runs, of one run or of all, whose process has ended and that nobody has closed; each with its run."""
    closed = {event.subject for event in store.events.all(run=run, kind=CLOSED)}
    begun = [event for event in store.events.all(run=run, kind=BEGUN) if event.subject not in closed]
    return {event.subject: str(event.run) for event in begun if is_known_dead(str(event.data.get("owner", "")))}


def close(store: Store, run: str | None = None) -> int:
    """Mark what was left behind as crashed in Prefect, with its sub-flows and trials; how many flow runs that were.

    Prefect's API has to be up. One that does not know a flow run (another server had it) closes nothing.
    """
    dead = left_behind(store, run)
    if not dead:
        return 0
    from prefect.client.orchestration import get_client

    count = 0
    with get_client(sync_client=True) as client:
        for flow_run, of in dead.items():
            found = _crash(client, UUID(flow_run))
            if found is not None:
                count += found
                store.events.add(EventRecord(kind=CLOSED, run=of, subject=flow_run))
    return count


def _crash(client: Any, flow_run: UUID) -> int | None:
    """Mark a flow run and all below it that has not ended; how many flow runs that were, None where it is not known."""
    from prefect.client.schemas import filters
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    try:
        known = client.read_flow_run(flow_run)
    except ObjectNotFound:
        return None
    state: Any = Crashed(message="its process died; the store has what it had done")
    below = filters.FlowRunFilter(parent_flow_run_id=filters.FlowRunFilterParentFlowRunId(any_=[flow_run]))
    children = [child.id for child in _all(client.read_flow_runs, below)]
    count = sum(_crash(client, child) or 0 for child in children)
    inside = filters.FlowRunFilter(id=filters.FlowRunFilterId(any_=[flow_run]))
    for task_run in list(_all(client.read_task_runs, inside)):
        if not task_run.state or not task_run.state.is_final():
            client.set_task_run_state(task_run.id, state, force=True)
    if known.state and known.state.is_final():
        return count
    client.set_flow_run_state(flow_run, state, force=True)
    return count + 1


def _all(read: Callable[..., list[Any]], wanted: Any) -> Iterator[Any]:
    """Every row that the filter gives; the server gives them by the page."""
    offset = 0
    while rows := read(flow_run_filter=wanted, limit=PAGE, offset=offset):
        yield from rows
        offset += len(rows)
