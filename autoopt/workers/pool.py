"""A pool of warm worker processes: the only way in which autoopt touches a model or a user's script."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from autoopt.workers import limits, protocol
from autoopt.workers.environ import child_environment
from autoopt.workers.gate import gated_call
from autoopt.workers.process import CallResult, Cancelled, WorkerProcess

_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


class WorkerPool:
    """Up to `size` worker processes. Thread-safe; as many calls run at once as there are workers.

    Each worker has a process group of its own, which is killed at the time or memory limit, on cancellation, and when
    this process ends in whatever way. A death costs the one call, which says so; the next gets a fresh worker.

    python: the interpreter of the workers, default this one; another needs only what the called functions import.
    memory: bytes that a call may use, unless it says otherwise; None: half of the machine's, 0: no limit.
    env: environment variables set on top of ours.
    lend: whether modules that another interpreter of the same minor version lacks are taken from this one.
    """

    def __init__(
        self,
        size: int = 2,
        python: str | None = None,
        memory: int | None = None,
        env: Mapping[str, str] | None = None,
        lend: bool = False,
    ) -> None:
        self.size = size
        self.python = python or sys.executable
        self.memory = limits.machine_memory() // 2 if memory is None else memory
        self._env = child_environment(self.python, env, lend)
        self._idle: list[WorkerProcess] = []
        self._busy = 0
        self._free = threading.Condition()
        self._modules: list[str] = []
        self._era = 0
        self._closed = False
        self._owner = os.getpid()
        _pools.add(self)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        function: str,
        payload: dict[str, Any],
        timeout: float | None = 60.0,
        memory: int | None = None,
        cancel: threading.Event | None = None,
    ) -> CallResult:
        """Run `function` (`module:function`, JSON in and out) in a worker; wait for a free one first.

        The time limit, in seconds, starts when a worker is free; it is kept to within 5 s. `memory` in bytes,
        None: the pool's, 0: no limit.

        Raises:
            Cancelled: `cancel` was set, `cancel()` was called or the pool was closed.
            SystemFailure: the interpreter cannot run a worker.
            TypeError, ValueError: the payload is not JSON.
        """
        cap = (self.memory if memory is None else memory) or None
        request = protocol.encode({"call": function, "payload": payload, "memory": cap})
        with self._free:
            era = self._era

        def cancelled() -> bool:
            return self._era != era or (cancel is not None and cancel.is_set())

        worker = self._take(cancelled, cap)
        try:
            return worker.call(request, timeout, cap, cancelled)
        finally:
            self._give_back(worker)

    def warm(self, modules: Sequence[str]) -> None:
        """Start all workers and have them import `modules`, now and whenever one is replaced; returns at once."""
        with self._free:
            self._modules += [m for m in modules if m not in self._modules]
            fresh = [self._new_worker() for _ in range(self.size - self._busy - len(self._idle))]
            for worker in self._idle:
                worker.warm(modules)
            self._idle = fresh + self._idle

    def cancel(self) -> None:
        """End all calls that are running or waiting now; later ones are served."""
        with self._free:
            self._era += 1
            self._free.notify_all()

    def close(self) -> None:
        """End all workers; running calls raise `Cancelled`. Returns when all are gone. Closing twice is fine."""
        if os.getpid() != self._owner:  # a fork of this process does not own the workers
            return
        with self._free:
            self._closed = True
            self._era += 1
            idle, self._idle = self._idle, []
            self._free.notify_all()
        for worker in idle:
            worker.kill()
        with self._free:  # those who called see it within a tick and end their workers
            self._free.wait_for(lambda: not self._busy, timeout=limits.PROMISE)

    def _new_worker(self) -> WorkerProcess:
        worker = WorkerProcess(self.python, self._env)
        if self._modules:
            worker.warm(self._modules)
        return worker

    def _take(self, cancelled: Any, memory: int | None) -> WorkerProcess:
        with self._free:
            while True:
                if self._closed or cancelled():
                    raise Cancelled("the pool is closed" if self._closed else "cancelled")
                if self._busy < self.size:
                    break
                self._free.wait(0.1)
            self._busy += 1
            worker = self._idle.pop() if self._idle else None
        try:
            if worker is not None and not _fit(worker, memory):
                worker.kill()
                worker = None
            return worker or self._new_worker()
        except BaseException:
            self._release()
            raise

    def _give_back(self, worker: WorkerProcess) -> None:
        keep = worker.alive
        with self._free:
            keep = keep and not self._closed
            if keep:
                self._idle.append(worker)
        if not keep:
            worker.kill()
        self._release()

    def _release(self) -> None:
        with self._free:
            self._busy -= 1
            self._free.notify_all()


def _fit(worker: WorkerProcess, memory: int | None) -> bool:
    """Whether a used worker lives and still has at least half of the memory that the call may use."""
    return worker.alive and (memory is None or worker.calls == 0 or worker.data <= memory // 2)


def call_once(function: str, payload: dict[str, Any], timeout: float | None = 60.0) -> CallResult:
    """One call in a worker of its own, behind the gate."""
    with WorkerPool(size=1) as pool:
        return gated_call(pool, function, payload, timeout)


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()
