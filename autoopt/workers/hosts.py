"""Hosts: the places where passes run and candidates are measured.

`local` is this interpreter. `python_env` is another one with its own runtime and autoopt's libraries. `isolated_ort`
has only numpy and onnxruntime: it borrows everything else from this interpreter, and therefore needs the same minor
version of Python.
"""

from __future__ import annotations

import math
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
from autoopt.workers.pool import WorkerPool
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
    fresh: bool = False
    """The call needs a worker that has served no other."""
    until: float = math.inf
    """Time on `time.monotonic` at which the call ends, whether it was paused or not."""


@dataclass(frozen=True)
class HostReply(Generic[Reply]):
    """The end of a call on a host, and the reply if there is one."""

    result: CallResult
    reply: Reply | None


class Host:
    """A pool of workers of one interpreter: it runs passes and measures candidates in killable processes. Thread-safe.

    A crash, a time limit or a memory limit is an outcome of the call. Only a host that was closed raises.
    """

    def __init__(self, name: str, pool: WorkerPool) -> None:
        self.name = name
        self.pool = pool

    def run_pass(self, request: PassRequest, limits: CallLimits) -> HostReply[PassReply]:
        """Run the passes of a request, in order, up to the first failure."""
        return _reply(self._call(RUN_PASSES, to_json(request), limits), partial(from_json, PassReply))

    def evaluate_model(self, meter: Meter, request: MeasureRequest, limits: CallLimits) -> HostReply[MeasureReply]:
        """Measure a candidate with a meter."""
        return _reply(self._call(meter.function, request.to_json(), limits), MeasureReply.from_json)

    def runtime(self) -> CallResult:
        """Describe the runtime: versions and execution providers."""
        return self.pool.call(RUNTIME, {})

    def passes(self, accelerator: Accelerator) -> HostReply[DescribeReply]:
        """Describe the passes that are installed there, with their parameters for an accelerator."""
        payload: dict[str, Any] = to_json(DescribeRequest(accelerator=accelerator))
        return _reply(self.pool.call(DESCRIBE, payload), DescribeReply.from_json)

    def _call(self, function: str, payload: dict[str, Any], limits: CallLimits) -> CallResult:
        return self.pool.call(function, payload, limits.seconds, limits.memory, fresh=limits.fresh, until=limits.until)

    def close(self) -> None:
        """End all calls and the workers."""
        self.pool.close()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reply(result: CallResult, parse: Callable[[dict[str, Any]], Reply]) -> HostReply[Reply]:
    return HostReply(result, None if result.value is None else parse(result.value))


def open_host(kind: Kind, python: str | None, memory: int | None = None) -> Host:
    """Open a host on this machine, with one worker.

    `python` is the path of the interpreter, unless the kind is `local`. `memory` limits a call, in bytes; None is half
    of the machine's.
    """
    if kind == "local":
        return Host("local", WorkerPool(1, memory=memory))
    return Host(f"{kind} {python}", WorkerPool(1, python, memory, lend=kind == "isolated_ort"))
