"""Hosts: where passes run and candidates are measured. One contract, whatever is behind it.

`local` is this interpreter. `python_env` is another one with a runtime of its own and what autoopt needs.
`isolated_ort` needs only numpy and onnxruntime there (and autoopt not at all): everything else is lent from here, which
asks for the same minor version of Python. Docker images and other machines are reached through Prefect work pools
(`autoopt.orchestrate.hosts.work_pool`), whose workers do the same there.
"""

from __future__ import annotations

import threading
from typing import Any, Literal, Protocol, TypeAlias

from autoopt.workers.pool import WorkerPool, gated_call
from autoopt.workers.process import CallResult

Kind: TypeAlias = Literal["local", "python_env", "isolated_ort"]
Payload: TypeAlias = dict[str, Any]


class Host(Protocol):
    """Does work in killable processes and says what became of it; thread-safe. Limits as of `WorkerPool.call`."""

    name: str
    remote: bool
    """Whether its machine is another one than this, with a measurement gate of its own."""

    def call(
        self,
        function: str,
        payload: Payload,
        timeout: float | None = 60.0,
        memory: int | None = None,
        cancel: threading.Event | None = None,
        alone: bool = False,
    ) -> CallResult:
        """Any worker function. `alone`: a remote host sees to it that nothing else of autoopt runs there meanwhile."""
        ...

    def run_pass(
        self, payload: Payload, timeout: float | None, memory: int | None = None, cancel: threading.Event | None = None
    ) -> CallResult:
        """A pass run as `autoopt.passes.runner:run` takes it."""
        return self.call("autoopt.passes.runner:run", payload, timeout, memory, cancel)

    def evaluate_model(
        self,
        meter: str,
        payload: Payload,
        timeout: float | None,
        memory: int | None = None,
        cancel: threading.Event | None = None,
    ) -> CallResult:
        """A measurement by the meter function `module:function`."""
        return self.call(meter, payload, timeout, memory, cancel)

    def runtime(self) -> CallResult:
        """Versions and execution providers there, as `autoopt.model.worker:runtime` tells them."""
        return self.call("autoopt.model.worker:runtime", {}, timeout=60.0)

    def close(self) -> None: ...


class PoolHost(Host):
    """A host on this machine: a pool of workers of some interpreter."""

    remote = False

    def __init__(self, name: str, pool: WorkerPool) -> None:
        self.name = name
        self.pool = pool

    def __enter__(self) -> PoolHost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        function: str,
        payload: Payload,
        timeout: float | None = 60.0,
        memory: int | None = None,
        cancel: threading.Event | None = None,
        alone: bool = False,
    ) -> CallResult:
        return self.pool.call(function, payload, timeout, memory, cancel)

    def runtime(self) -> CallResult:
        return gated_call(self.pool, "autoopt.model.worker:runtime", {})

    def close(self) -> None:
        self.pool.close()


def open_host(kind: Kind = "local", python: str | None = None, size: int = 2, memory: int | None = None) -> PoolHost:
    """A host on this machine. `python` is the interpreter of the two kinds that have one of their own."""
    pool = WorkerPool(size, python if kind != "local" else None, memory, lend=kind == "isolated_ort")
    return PoolHost(kind if kind == "local" else f"{kind} {python}", pool)
