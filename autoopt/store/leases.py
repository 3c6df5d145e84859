"""Leases: renewing one's own while work is under way, and ending runs whose owners have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from autoopt.errors import SystemFailure
from autoopt.owner import is_known_alive
from autoopt.store.records import LEASE_SECONDS, ClaimKind, Json, RunRecord, RunStatus
from autoopt.store.store import Store


@contextmanager
def renewed_claim(store: Store, kind: ClaimKind, key: str, seconds: float = LEASE_SECONDS) -> Iterator[threading.Event]:
    """Renew a claim at once, and then three times per lease from a thread of its own until the block ends.

    Yields:
        An event that is set once the claim is lost. The block should then stop: its result will be refused.
    """
    lost, ended = threading.Event(), threading.Event()

    def renew() -> None:
        # The lease may outlive a database that is unreachable for a while.
        with suppress(SystemFailure):
            if not store.claims.renew(kind, key, seconds):
                lost.set()

    def renew_until_end() -> None:
        while not lost.is_set() and not ended.wait(seconds / 3):
            renew()

    renew()
    thread = threading.Thread(target=renew_until_end, name=f"lease of {key[:12]}", daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        ended.set()
        thread.join()


@contextmanager
def run_lease(store: Store, run: str, on_note: Callable[[str], None]) -> Iterator[None]:
    """Hold the lease of a run until the block ends; an error that leaves the block ends the run.

    It ends as failed, or as cancelled if the user stopped it; `on_note` takes a line that says how to continue then.
    """
    try:
        with renewed_claim(store, "run", run):
            yield
    except BaseException as error:
        status: RunStatus = "failed" if isinstance(error, Exception) else "cancelled"
        with suppress(SystemFailure):  # the caller reports `error`, which usually has the same cause
            end_run(store, run, status, str(error))
        if status == "cancelled":
            on_note(f"cancelled; continue with: autoopt resume {run}")
        raise


def close_dead_runs(store: Store, identity: str, successor: str) -> None:
    """Record the interrupted runs with this identity as cancelled, except their successor.

    `successor` is the id of the run that has the result or continues the search.
    """
    error = f"its process ended; run {successor} is the same search"
    for run in store.runs.all(status="running", identity=identity):
        if run.id != successor:
            _close_dead_run(store, run, error)


def _close_dead_run(store: Store, run: RunRecord, error: str) -> None:
    """Record an interrupted run and its parts as cancelled; leave it if its process may live."""
    if run.owner is not None and (run.owner == store.owner or is_known_alive(run.owner)):
        return
    if not store.claims.acquire("run", run.id):
        return
    end_run(store, run.id, "cancelled", error)
    for part in store.runs.all(status="running", parent=run.id):
        _close_dead_run(store, part, error)


def resumable_runs(store: Store) -> list[RunRecord]:
    """The interrupted and cancelled runs that no process works on, newest first, one for each search.

    A cancelled run of a sweep belongs to that sweep; checks, and one whose search has finished since, are left out.
    """
    runs: dict[str, RunRecord] = {}
    for run in store.runs.all():
        if run.parent is not None or run.is_check or run.identity in runs:
            continue
        interrupted = run.status == "running" and bool(store.claims.acquire("run", run.id))
        cancelled = run.status == "cancelled" and run.sweep is None
        if interrupted or (cancelled and store.runs.latest_finished(run.identity) is None):
            runs[run.identity] = run
    return list(runs.values())


def begun_runs(store: Store) -> list[str]:
    """The ids of the resumable runs with a trial, newest first; if none has one, of the newest run alone."""

    def has_trial(run: RunRecord) -> bool:
        return any(store.trials.all(part.id) for part in (run, *store.runs.all(parent=run.id)))

    runs = resumable_runs(store)
    return [run.id for run in runs if has_trial(run)] or [run.id for run in runs[:1]]


def end_run(store: Store, run: str, status: RunStatus, error: str) -> None:
    """End a run without a result; its interim result stays."""
    interim = store.runs.get(run).result
    store.runs.finish(run, status, {**interim, "error": error})


def finish_run(store: Store, run: str, result: Json) -> None:
    """Store the result of a run, and close interrupted runs that searched for the same."""
    store.runs.finish(run, "finished", result)
    close_dead_runs(store, store.runs.get(run).identity, run)
