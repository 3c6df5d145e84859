"""What a run works with on this machine: the store, workers, a folder for files on their way into the store."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from autoopt.engine.context import Locks
from autoopt.engine.hosts import Hosts
from autoopt.engine.request import RunRequest
from autoopt.settings import settings
from autoopt.spec import DagSpec
from autoopt.store import Store
from autoopt.workers import WorkerPool


@dataclass
class Bench:
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


def open_bench(request: RunRequest, spec: DagSpec) -> Bench:
    """A bench for a request; whoever opens it closes it."""
    store = Store.open(request.db_url or settings().db_url, request.home or settings().home)
    memory, size = request.limits.memory or spec.limits.memory, max(1, request.workers)
    hosts = Hosts(memory=memory, home=store.home, opener=request.opener)
    return Bench(store, WorkerPool(size, memory=memory), scratch_folder(store.home), hosts)


@contextmanager
def closed_on_error(bench: Bench) -> Iterator[Bench]:
    """The bench, closed where what is done with it fails."""
    try:
        yield bench
    except BaseException:
        bench.close()
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
