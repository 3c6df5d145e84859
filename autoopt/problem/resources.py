"""The resources of a run on this machine: store, workers, hosts, measurement gate, locks and a scratch folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from autoopt.problem.hosts import Hosts
from autoopt.problem.quarantine import Quarantine
from autoopt.problem.run_request import RunRequest
from autoopt.spec import DagSpec
from autoopt.store import Store, open_store
from autoopt.workers import Gate, WorkerPool
from autoopt.workers.gate import report_other_runs
from autoopt.working_folder import STORE_WORK, make_working_folder, remove_working_folder


class Locks:
    """One lock per key, so that two threads of this process do not start the same work."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def holding(self, key: str) -> threading.Lock:
        """The lock of a key, to be held during a block."""
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())


@dataclass(frozen=True)
class Resources:
    """Shared by all threads of a run, and by all targets of a run over several."""

    store: Store
    pool: WorkerPool
    hosts: Hosts
    gate: Gate
    quarantine: Quarantine
    scratch: Path
    """Folder for files on their way into the store, on its file system."""
    locks: Locks = field(default_factory=Locks)

    def stop(self) -> None:
        """End all calls under way and refuse further ones."""
        self.pool.close()
        self.hosts.close()

    def close(self) -> None:
        """End the workers, remove the scratch folder and close the store's connections."""
        self.stop()
        remove_working_folder(self.scratch)
        self.store.close()


def open_resources(request: RunRequest, spec: DagSpec) -> Resources:
    """Open what a run works with on this machine. The caller closes it."""
    memory = request.limits.memory or spec.limits.memory
    store = open_store(request.db_url, request.home)
    pool = WorkerPool(max(1, request.workers), memory=memory)
    return Resources(
        store=store,
        pool=pool,
        hosts=Hosts(pool, memory=memory),
        gate=Gate(on_wait=report_other_runs(request.observer.on_note)),
        quarantine=Quarantine(store, retry=request.again == "failed"),
        scratch=make_working_folder(store.home / STORE_WORK),
    )


@contextmanager
def closed_on_error(resources: Resources) -> Iterator[Resources]:
    """Close the resources if the block fails."""
    try:
        yield resources
    except BaseException:
        resources.close()
        raise
