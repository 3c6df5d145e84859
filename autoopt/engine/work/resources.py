"""What a run works with on this machine: the store, workers, a folder for files on their way into the store."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from autoopt.engine.work.context import Locks
from autoopt.engine.work.hosts import Hosts, Opener
from autoopt.settings import settings
from autoopt.store import Store, open_store
from autoopt.workers import WorkerPool


@dataclass
class Resources:
    """Shared by the parts of a run over several targets, so that none does what another is at."""

    store: Store
    pool: WorkerPool
    scratch: Path
    hosts: Hosts
    locks: Locks = field(default_factory=Locks)

    def close(self) -> None:
        """End the workers, remove the folder, give back the store's connections."""
        self.pool.close()
        self.hosts.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.store.close()


def open_resources(
    *, home: Path | None, db_url: str | None, workers: int, memory: int | None, opener: Opener | None
) -> Resources:
    """Open the store and start a worker pool; the caller closes them.

    Args:
        home: folder of the store; None for the one of the settings.
        db_url: database of the store; None for the one of the settings.
        workers: worker processes at a time.
        memory: bytes that one call may use; None for half of this machine's.
        opener: how hosts behind work pools are reached.
    """
    store = open_store(db_url or settings().db_url, home or settings().home)
    hosts = Hosts(memory=memory, home=store.home, opener=opener)
    return Resources(store, WorkerPool(max(1, workers), memory=memory), scratch_folder(store.home), hosts)


@contextmanager
def closed_on_error(resources: Resources) -> Iterator[Resources]:
    """The resources, closed where what is done with it fails."""
    try:
        yield resources
    except BaseException:
        resources.close()
        raise


def scratch_folder(home: Path) -> Path:
    """A folder for files on their way into the store, on its file system; those of dead processes are removed."""
    folder = home / "work"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        pid = old.name.split("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=folder))
