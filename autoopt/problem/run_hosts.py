"""The hosts of a run: this interpreter and others on this machine."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from autoopt.errors import InputError, SystemFailure
from autoopt.problem.problem import Runtime
from autoopt.registry import DescribeReply, PassInfo
from autoopt.script import check_allowed
from autoopt.spec import DagSpec
from autoopt.spec.targets import HostSpec
from autoopt.target import Accelerator
from autoopt.workers import WorkerPool
from autoopt.workers.hosts import Host, open_host


class Hosts:
    """Opens each host at its first use. Thread-safe."""

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
        self._asking_lock = threading.Lock()

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
        opened = self.of(host)
        with self._asking_lock:
            if host not in self._runtimes:
                try:
                    result = opened.runtime()
                except SystemFailure as error:
                    what = f"is no Python that autoopt can use ({error.what})"
                    raise InputError(what, where=host.python) from None
                if result.value is None:
                    reason = f"its runtime does not work ({result.message or result.outcome})"
                    raise InputError(reason, where=opened.name)
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
        opened = self.of(host)
        with self._asking_lock:
            if (host, accelerator) not in self._passes:
                answer = opened.passes(accelerator)
                if answer.reply is None:
                    reason = f"it does not say which passes it has ({answer.result.message or answer.result.outcome})"
                    raise InputError(reason, where=opened.name)
                self._passes[host, accelerator] = _by_name(answer.reply)
            return self._passes[host, accelerator]

    def runtimes_of(self, spec: DagSpec) -> dict[str, Runtime]:
        """`runtime_of` every other host that runs passes or measures for the first target, by the host's name."""
        hosts = {spec.all_targets[0].where, *map(spec.host_of, spec.passes)}
        others = {self.of(host).name: self.runtime_of(host) for host in hosts if host.type != "local"}
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
