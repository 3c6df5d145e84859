"""Hosts: the places where passes run and candidates are measured.

`local` is this interpreter. `python_env` is another one with its own runtime and autoopt's libraries. `isolated_ort`
has only numpy and onnxruntime: it borrows everything else from this interpreter, and therefore needs the same minor
version of Python. Docker images and other machines are reached through Prefect work pools, see
`autoopt.orchestrate.hosts.work_pool`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from autoopt.json_codec import from_json, to_json
from autoopt.measure.meters import Meter
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.passes.request import RUN_PASSES, PassReply, PassRequest
from autoopt.registry import DESCRIBE, DescribeReply, DescribeRequest
from autoopt.target import Accelerator
from autoopt.workers.pool import WorkerPool, gated_call
from autoopt.workers.process import CallResult

Kind: TypeAlias = Literal["local", "python_env", "isolated_ort"]
Reply = TypeVar("Reply")
RUNTIME = "autoopt.model.worker:runtime"


@dataclass(frozen=True)
class CallLimits:
    """Limits of one call."""

    seconds: float | None = 60.0
    """Time in which the call was not paused."""
    memory: int | None = None
    """Bytes; None for the worker pool's limit, 0 for none."""
    exclusive: bool = False
    """A remote host keeps other work of autoopt away from its machine. On this machine the caller holds the gate."""
    cores: tuple[int, ...] = ()
    """Cores that the call may use on this machine; empty for all."""
    until: float = math.inf
    """Time on `time.monotonic` at which the call ends on this machine, whether it was paused or not."""


@dataclass(frozen=True)
class HostReply(Generic[Reply]):
    """The end of a call on a host, and the reply if there is one."""

    result: CallResult
    reply: Reply | None


class Host(ABC):
    """Runs passes and measures candidates in killable processes. Thread-safe.

    A crash, a time limit or a memory limit is an outcome of the call. Only a host that was closed or
    cannot be reached raises.
    """

    name: str
    remote: bool
    """True if its machine is another one, which has a measurement gate of its own."""

    @abstractmethod
    def run_pass(self, request: PassRequest, limits: CallLimits) -> HostReply[PassReply]:
        """Run the passes of a request, in order, up to the first failure."""

    @abstractmethod
    def evaluate_model(self, meter: Meter, request: MeasureRequest, limits: CallLimits) -> HostReply[MeasureReply]:
        """Measure a candidate with a meter."""

    @abstractmethod
    def runtime(self) -> CallResult:
        """Describe the runtime there: versions and execution providers, and the CPU of a remote machine."""

    @abstractmethod
    def passes(self, accelerator: Accelerator) -> HostReply[DescribeReply]:
        """Describe the passes that are installed there, with their parameters for an accelerator."""

    @abstractmethod
    def close(self) -> None:
        """End all calls and release what the host uses."""

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FunctionHost(Host):
    """A host that runs worker functions, `module:function(JSON) -> JSON`."""

    @abstractmethod
    def call(self, function: str, payload: dict[str, Any], limits: CallLimits) -> CallResult:
        """Run a worker function.

        Raises:
            Cancelled: the host was closed.
        """

    def run_pass(self, request: PassRequest, limits: CallLimits) -> HostReply[PassReply]:
        return _reply(self.call(RUN_PASSES, to_json(request), limits), partial(from_json, PassReply))

    def evaluate_model(self, meter: Meter, request: MeasureRequest, limits: CallLimits) -> HostReply[MeasureReply]:
        return _reply(self.call(meter.function, request.to_json(), limits), MeasureReply.from_json)

    def runtime(self) -> CallResult:
        return self.describe(RUNTIME, {})

    def passes(self, accelerator: Accelerator) -> HostReply[DescribeReply]:
        result = self.describe(DESCRIBE, to_json(DescribeRequest(accelerator=accelerator)))
        return _reply(result, DescribeReply.from_json)

    def describe(self, function: str, payload: dict[str, Any]) -> CallResult:
        """Run a worker function that describes the host, while nobody measures there."""
        return self.call(function, payload, CallLimits())


def _reply(result: CallResult, parse: Callable[[dict[str, Any]], Reply]) -> HostReply[Reply]:
    return HostReply(result, None if result.value is None else parse(result.value))


class PoolHost(FunctionHost):
    """A host on this machine: a pool of workers of some interpreter."""

    remote = False

    def __init__(self, name: str, pool: WorkerPool) -> None:
        self.name = name
        self.pool = pool

    def call(self, function: str, payload: dict[str, Any], limits: CallLimits) -> CallResult:
        return self.pool.call(function, payload, limits.seconds, limits.memory, limits.cores, until=limits.until)

    def describe(self, function: str, payload: dict[str, Any]) -> CallResult:
        return gated_call(self.pool, function, payload)

    def close(self) -> None:
        self.pool.close()


def open_host(kind: Kind, python: str | None, memory: int | None = None) -> PoolHost:
    """Open a host on this machine, with one worker.

    `python` is the path of the interpreter, unless the kind is `local`. `memory` limits a call, in bytes; None is half
    of the machine's.
    """
    if kind == "local":
        return PoolHost("local", WorkerPool(1, memory=memory))
    return PoolHost(f"{kind} {python}", WorkerPool(1, python, memory, lend=kind == "isolated_ort"))
