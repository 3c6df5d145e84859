"""Hosts: the places where passes run and candidates are measured.

`local` is this interpreter. `python_env` is another one with its own runtime and autoopt's libraries. `isolated_ort`
has only numpy and onnxruntime: it borrows everything else from this interpreter, and therefore needs the same minor
version of Python.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from autoopt.errors import InputError, SystemFailure
from autoopt.json_codec import from_json, to_json
from autoopt.measure.meters import Meter
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.passes.request import RUN_PASSES, PassReply, PassRequest
from autoopt.problem.problem import Runtime
from autoopt.registry import DESCRIBE, DescribeReply, DescribeRequest, PassInfo
from autoopt.script import check_allowed
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.spec.targets import HostSpec, TargetSpec
from autoopt.target import DEFAULT_EP, Accelerator
from autoopt.workers import WorkerPool
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


class Hosts:
    """Opens each host at its first use. Threads may share it; it is asked by the one that resolves a request."""

    def __init__(self, pool: WorkerPool, *, memory: int | None = None) -> None:
        """Create the collection.

        The workers in `pool` are those of this interpreter, and their owner closes them. `memory` limits a call, in
        bytes; None is half of the machine's.
        """
        self._local = Host("local", pool)
        self._memory = memory
        self._open: dict[HostSpec, Host] = {}
        self._runtimes: dict[HostSpec, Runtime] = {}
        self._passes: dict[tuple[HostSpec, Accelerator], Mapping[str, PassInfo]] = {}
        self._open_lock = threading.Lock()

    def of(self, host: HostSpec) -> Host:
        """The host that a DAG names.

        Raises:
            InputError: Its interpreter may not be used here.
        """
        if host.type == "local":
            return self._local
        with self._open_lock:
            if host not in self._open:
                check_allowed(host.python)
                self._open[host] = open_host(host.type, host.python, self._memory)
            return self._open[host]

    def runtime_of(self, host: HostSpec) -> Runtime:
        """The runtime of a host, which is asked once.

        Raises:
            InputError: It cannot run what autoopt needs.
        """
        if host.type == "local":
            return {}
        if host not in self._runtimes:
            try:
                result = self.of(host).runtime()
            except SystemFailure as error:
                what = f"is no Python that autoopt can use ({error.what})"
                raise InputError(what, where=host.python) from None
            if result.value is None:
                reason = f"its runtime does not work ({result.message or result.outcome})"
                raise InputError(reason, where=host.elsewhere)
            if not result.value["onnxruntime"]:
                raise InputError("has no onnxruntime", where=host.python, remedy="install one there with pip")
            self._runtimes[host] = result.value
        return self._runtimes[host]

    def passes_of(self, host: HostSpec, accelerator: Accelerator) -> Mapping[str, PassInfo]:
        """The passes of a host by name and alias, for an accelerator; the host is asked once.

        Raises:
            InputError: It does not tell.
        """
        if host.type == "local":
            return {}
        if (host, accelerator) not in self._passes:
            answer = self.of(host).passes(accelerator)
            if answer.reply is None:
                reason = f"it does not say which passes it has ({answer.result.message or answer.result.outcome})"
                raise InputError(reason, where=host.elsewhere)
            self._passes[host, accelerator] = _by_name(answer.reply)
        return self._passes[host, accelerator]

    def runtimes_of(self, spec: DagSpec) -> dict[str, Runtime]:
        """`runtime_of` every other host that runs passes or measures for the first target, by the host's name."""
        hosts = {spec.all_targets[0].where, *map(spec.host_of, spec.passes)}
        others = {host.elsewhere: self.runtime_of(host) for host in hosts if host.type != "local"}
        return dict(sorted(others.items()))

    def close(self) -> None:
        """End the workers of all hosts but this interpreter."""
        with self._open_lock:
            for host in self._open.values():
                host.close()


def _by_name(reply: DescribeReply) -> dict[str, PassInfo]:
    """The passes of a host by name and alias, each marked with the versions of its libraries there."""
    passes: dict[str, PassInfo] = {}
    aliases: dict[str, PassInfo] = {}
    for info in reply.passes:
        libraries = [f"{name} {reply.versions[name]}" for name in info.libraries if name in reply.versions]
        marked = replace(info, source_digest=", ".join(filter(None, [info.source_digest, *libraries])))
        passes[info.name] = marked
        aliases.update(dict.fromkeys(info.aliases, marked))
    return aliases | passes


@dataclass(frozen=True)
class InstalledRuntime:
    """The onnxruntime of an interpreter, as its worker describes it."""

    interpreter: str
    """Its path; empty for this one."""
    distribution: str
    onnxruntime: str
    """Its version."""
    providers: tuple[str, ...]
    unusable: Mapping[str, str]
    """Providers that cannot be used here, and plug-ins that do not load, with the reason."""
    plugins: Mapping[str, str] = field(default_factory=dict)
    """The plug-in that has a provider, as a requirement."""
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The devices of a provider, where onnxruntime tells."""

    @property
    def name(self) -> str:
        """The distribution and its version, such as `onnxruntime 1.31.1`, and the interpreter if it is another one."""
        return f"{self.distribution} {self.onnxruntime}" + (f" of {self.interpreter}" if self.interpreter else "")

    @property
    def words(self) -> str:
        """The name and the providers: `onnxruntime 1.31.1 with CPU; not Azure: it runs models in a cloud`."""
        usable = [self._described(name) for name in self.providers if name not in self.unusable]
        reasons = [f"not {_short(name)}: {reason}" for name, reason in self.unusable.items()]
        return "; ".join([f"{self.name} with {', '.join(usable) or 'no provider'}", *reasons])

    def _described(self, provider: str) -> str:
        """The short name of a provider, its devices and plug-in: `OpenVINO (CPU, onnxruntime-ep-openvino 1.8.1)`."""
        facts = list(self.devices.get(provider, ())) if provider != DEFAULT_EP["cpu"] else []
        if provider in self.plugins:
            facts.append(self.plugins[provider].replace("==", " "))
        return f"{_short(provider)} ({', '.join(facts)})" if facts else _short(provider)


def machine_targets(options: ProposalOptions, runtimes: Sequence[InstalledRuntime]) -> tuple[TargetSpec, ...]:
    """A target for each usable provider; the first is the default one of the first runtime, which users have now.

    The default provider of another runtime counts if its version differs.
    """
    default, first = DEFAULT_EP["cpu"], runtimes[0]
    targets: dict[str, TargetSpec] = {}
    for runtime in runtimes:
        for provider in sorted(runtime.providers, key=lambda name: name != default):
            name = _short(provider).lower()
            is_known = name in targets and runtime.onnxruntime == first.onnxruntime
            if provider in runtime.unusable or (provider == default and is_known):
                continue
            while name in targets:
                name += f"-{runtime.onnxruntime}"
            targets[name] = options.of_provider(provider, runtime.interpreter, name).target()
    return tuple(targets.values())


def _short(provider: str) -> str:
    return provider.removesuffix("ExecutionProvider")
