"""The resources of a run on this machine: store, workers, hosts, measurement gate, locks and a scratch folder."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from autoopt.engine.work.hosts import Hosts, Opener
from autoopt.engine.work.quarantine import stored_quarantine
from autoopt.observer import SILENT, Observer
from autoopt.settings import settings
from autoopt.store import Store, open_store
from autoopt.workers import Gate, WorkerPool
from autoopt.workers.gate import report_other_runs
from autoopt.workers.quarantine import Deaths


class Locks:
    """One lock per key, so that two threads of this process do not start the same work."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def holding(self, key: str) -> Iterator[None]:
        """Hold the lock of a key during the block. Locks that nobody uses are removed."""
        with self._guard:
            lock, users = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks[key]
                if users == 1:
                    del self._locks[key]
                else:
                    self._locks[key] = (lock, users - 1)


@dataclass(frozen=True)
class Resources:
    """Shared by all threads of a run, and by all targets of a run over several."""

    store: Store
    pool: WorkerPool
    hosts: Hosts
    gate: Gate
    quarantine: Deaths
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
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.store.close()


@dataclass(frozen=True)
class ResourceOptions:
    """Options of `open_resources`."""

    home: Path | None = None
    """Folder of the store; None for the one of the settings."""
    db_url: str | None = None
    """Database of the store; None for the one of the settings."""
    workers: int = 2
    """Worker processes."""
    memory: int | None = None
    """Bytes that one call may use; None for half of this machine's memory."""
    opener: Opener | None = None
    """Opens hosts behind work pools."""
    observer: Observer = SILENT
    """Receives a note if another run keeps the machine busy."""


def open_resources(options: ResourceOptions) -> Resources:
    """Open the store and start a worker pool. The caller closes them."""
    store = open_store(options.db_url or settings().db_url, options.home or settings().home)
    pool = WorkerPool(max(1, options.workers), memory=options.memory)
    return Resources(
        store=store,
        pool=pool,
        hosts=Hosts(pool, memory=options.memory, home=store.home, opener=options.opener),
        gate=Gate(waiting=report_other_runs(options.observer.on_note)),
        quarantine=stored_quarantine(store),
        scratch=scratch_folder(store.home),
    )


@contextmanager
def closed_on_error(resources: Resources) -> Iterator[Resources]:
    """Close the resources if the block fails."""
    try:
        yield resources
    except BaseException:
        resources.close()
        raise


def scratch_folder(home: Path) -> Path:
    """Make a scratch folder below `home`, and remove those of processes that have ended."""
    folder = home / "work"
    folder.mkdir(parents=True, exist_ok=True)
    has_proc = Path("/proc/self").exists()
    for entry in folder.iterdir():
        pid = entry.name.split("-")[0]
        if has_proc and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(entry, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=folder))
