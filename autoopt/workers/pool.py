"""A pool of warm worker processes: the only way in which autoopt touches a model or a user's script.

Other pools keep fewer promises. With a call that hangs in native code and holds the interpreter's lock, and has started
a process in a session of its own (Linux, Python 3.11):

| | concurrent.futures on multiprocessing's fork server | loky 3.7 | pebble 5.2 | this one |
|---|---|---|---|---|
| left at a time limit of 2 s | both | both | the started one | none |
| the next call | fails | fails | works | works |
| memory limit of a call | no | no | no | yes |
| left 5 s after kill -9 of the owner | both | both | both | none |

Server and first worker with numpy, onnx and onnxruntime take 0.35 s of CPU, as much as each worker of loky.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import math
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from autoopt.errors import ErrorRecord
from autoopt.memory import machine_memory
from autoopt.outcome import Cause, Outcome
from autoopt.workers.fork_server import child_environment, end_servers, preload
from autoopt.workers.gate import FOREVER, Gate, pausable, report_waiting
from autoopt.workers.process import CallResult, Cancelled, KilledAtStart, WorkerProcess
from autoopt.workers.protocol import CallRequest, requested_level
from autoopt.working_folder import remove_temporary_folder

_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
READING: Final = ("onnx", "pydantic.dataclasses", "pydantic.type_adapter", "autoopt.data.worker")
"""Modules that the reading of a model and its data needs."""
WARM: Final = (
    *READING,
    "onnxruntime",
    "numpy.random",
    "autoopt.passes.runner",
    "autoopt.measure.worker",
    "autoopt.measure.latency.meter",
    "autoopt.measure.quality.meters",
)
"""Modules that all workers of a run need; they share one import."""
KILL_SECONDS: Final = 5.0
"""A worker is gone within this time after its limit or the end of its pool."""
logger = logging.getLogger(__name__)


class WorkerPool:
    """Up to `size` worker processes. Thread-safe; as many calls run at once as there are workers.

    Each worker has a process group of its own, which is killed at the time or memory limit, when the pool is closed,
    and when this process ends in any way. A death fails only the call that was running; the next call gets a fresh
    worker. A worker that may have executed a user's script serves only calls that name the same script.

    Args:
        size: number of workers.
        python: the workers' interpreter, by default this one; another one needs only what the called functions import.
        memory: default limit of a call in bytes; None for half of the machine's memory, 0 for no limit.
        env: environment variables set on top of those of this process.
        lend: let another interpreter of the same minor version import modules that it lacks from this one.
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
        self.memory = memory
        if memory is None:
            self.memory = machine_memory() // 2
        self._env = child_environment(self.python, env, lend)
        self._idle: list[WorkerProcess] = []
        self._calls = itertools.count()
        """Numbers of the calls."""
        self._busy = 0
        self._free = threading.Condition()
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
        *,
        fresh: bool = False,
        until: float = math.inf,
    ) -> CallResult:
        """Run a function in a worker, after waiting for a free one.

        Args:
            function: `module:function`; takes and returns JSON.
            payload: its argument. Its fields `user_script`, at any depth, name the scripts that the call may execute.
            timeout: limit in seconds from the moment a worker is free, without pauses; enforced to within 5 s.
            memory: limit in bytes; None for the pool's, 0 for no limit.
            fresh: use a worker that has served no other call.
            until: time on `time.monotonic` at which the call ends even if it was paused.

        Raises:
            Cancelled: the pool was closed.
            SystemFailure: the interpreter cannot run a worker.
            TypeError, ValueError: the payload is not JSON.
        """
        if memory is None:
            memory = self.memory
        cap = memory or None
        request = CallRequest(function, payload, cap, requested_level())
        worker = self._acquire(request, fresh=fresh)
        worker.last_calls[function] = next(self._calls)
        is_shared = worker.calls > 0
        logger.debug("call %s, time limit %s s, memory limit %s bytes", function, timeout, cap)
        try:
            with pausable(worker, self._has_room):
                result = worker.call(request, timeout, cap, self._is_closed, until)
            return replace(result, shared=is_shared)
        except KilledAtStart:
            # Nothing of the call has run: whatever killed the process, the call is not to blame.
            worker = self._start(worker.scripts)
            try:
                return worker.call(request, timeout, cap, self._is_closed, until)
            except KilledAtStart as error:
                record = ErrorRecord("SystemFailure", str(error))
                return CallResult(Outcome.CRASHED, message=str(error), error=record, cause=Cause.MACHINE)
        finally:
            self._give_back(worker)

    def warm(self, modules: Sequence[str], workers: int | None = None) -> None:
        """Start workers, and have all that start now or later share the import of `modules`; returns at once.

        Idle workers without these modules are replaced. The modules start no threads. `workers` is the number of
        workers that run afterwards, unless more do already; None for all of the pool.
        """
        if workers is None:
            workers = self.size
        outdated: list[WorkerProcess] = []
        with self._free:
            if preload(self.python, self._env, modules):
                outdated, self._idle = self._idle, []
            missing = max(workers, len(outdated)) - self._busy - len(self._idle)
            self._idle = [WorkerProcess(self.python, self._env) for _ in range(missing)] + self._idle
        for worker in outdated:
            worker.kill()

    def close(self) -> None:
        """End all workers; running calls raise `Cancelled`. Returns when all are gone. Closing twice is fine."""
        if os.getpid() != self._owner:  # a fork of this process does not own the workers
            return
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
            self._free.notify_all()
        for worker in idle:
            worker.kill()
        with self._free:  # running calls notice within a tick and end their workers
            self._free.wait_for(lambda: not self._busy, timeout=KILL_SECONDS)

    def _start(self, scripts: frozenset[str]) -> WorkerProcess:
        """Start a worker for these scripts."""
        worker = WorkerProcess(self.python, self._env)
        worker.scripts = scripts
        return worker

    def _is_closed(self) -> bool:
        return self._closed

    def _has_room(self) -> bool:
        """True if another call finds a worker."""
        return self._busy < self.size

    def _acquire(self, request: CallRequest, *, fresh: bool) -> WorkerProcess:
        scripts = frozenset(_scripts_in(request.payload))
        with self._free:
            while self._busy >= self.size and not self._closed:
                self._free.wait(0.1)
            if self._closed:
                raise Cancelled("the pool is closed")
            self._busy += 1
            worker = self._take_idle(request.call, scripts, fresh=fresh)
            surplus = self._idle.pop(0) if worker is None and len(self._idle) > self.size else None
        try:
            if surplus is not None:
                surplus.kill()
            if worker is None:
                return self._start(scripts)
            if not _is_fit(worker, request.memory):
                worker.kill()
                return self._start(scripts)
            worker.scripts |= scripts
            return worker
        except BaseException:
            self._release()
            raise

    def _take_idle(self, function: str, scripts: frozenset[str], *, fresh: bool) -> WorkerProcess | None:
        """An idle worker for a call: one with the scripts, that ran the function last, as it has kept what that needs.

        Of several such, it is the last one.
        """
        usable = [idle for idle in self._idle if not idle.calls or (not fresh and idle.scripts <= scripts)]
        if not usable:
            return None
        worker = max(reversed(usable), key=lambda idle: (len(idle.scripts), idle.last_calls.get(function, -1)))
        self._idle.remove(worker)
        return worker

    def _give_back(self, worker: WorkerProcess) -> None:
        alive = worker.alive
        with self._free:
            reusable = alive and not self._closed
            if reusable:
                self._idle.append(worker)
        if not reusable:
            worker.kill()
        self._release()

    def _release(self) -> None:
        with self._free:
            self._busy -= 1
            self._free.notify_all()


def _scripts_in(payload: object) -> Iterator[str]:
    """The values of all fields `user_script` of a JSON value."""
    if isinstance(payload, Mapping):
        script = payload.get("user_script")
        if isinstance(script, str):
            yield script
        payload = payload.values()
    if not isinstance(payload, str) and isinstance(payload, Iterable):
        for item in payload:
            yield from _scripts_in(item)


def _is_fit(worker: WorkerProcess, memory: int | None) -> bool:
    """True if a used worker lives and has at least half of the memory left that the call may use."""
    return worker.alive and (memory is None or worker.calls == 0 or worker.data <= memory // 2)


def gated_call(
    pool: WorkerPool,
    function: str,
    payload: dict[str, Any],
    timeout: float | None = 60.0,
    memory: int | None = None,
    patience: float = FOREVER,
) -> CallResult:
    """Make a call behind the gate, for work outside of a run's trials; reports a long wait.

    The call continues beside a measurement that takes longer than `patience`, in seconds.
    """
    gate = Gate(on_wait=report_waiting)
    with gate.working() if patience == FOREVER else gate.brief_work(patience):
        return pool.call(function, payload, timeout, memory)


def repeated_call(
    pool: WorkerPool, function: str, payload: dict[str, Any], timeout: float, *, gated: bool = True
) -> CallResult:
    """Make a call, and once more with nothing else running if other work may have made it fail."""
    result = gated_call(pool, function, payload, timeout) if gated else pool.call(function, payload, timeout)
    if result.cause is Cause.MACHINE:
        with Gate(on_wait=report_waiting).measuring():
            result = pool.call(function, payload, timeout)
    return result


def reading_call(pool: WorkerPool, function: str, payload: dict[str, Any], timeout: float) -> CallResult:
    """Make a call that only reads, as `repeated_call` does, but without waiting at the gate."""
    return repeated_call(pool, function, payload, timeout, gated=False)


def call_once(function: str, payload: dict[str, Any], timeout: float | None = 60.0) -> CallResult:
    """Make one call in a worker of its own, behind the gate."""
    with WorkerPool(size=1) as pool:
        return gated_call(pool, function, payload, timeout)


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()
    end_servers()
    remove_temporary_folder()
