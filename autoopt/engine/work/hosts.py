"""The hosts of a run beside this interpreter: where passes run, and where other runtimes and machines measure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from autoopt.errors import InputError
from autoopt.spec import DagSpec
from autoopt.spec.targets import HostSpec
from autoopt.workers.hosts import Host, open_host

Opener: TypeAlias = Callable[[HostSpec, Path], Host]
"""Opens a host behind a work pool, for a run in the store of that home."""


class Hosts:
    """Opened at first use. Thread-safe."""

    def __init__(self, memory: int | None, home: Path, opener: Opener | None) -> None:
        """`memory`: bytes that a call may use on this machine, half of it where None; `opener`: how hosts behind work
        pools are reached."""
        self._memory, self._home, self._opener = memory, home, opener
        self._open: dict[HostSpec, Host] = {}
        self._runtimes: dict[HostSpec, Mapping[str, Any]] = {}
        self._lock, self._asking = threading.Lock(), threading.Lock()

    def of(self, host: HostSpec) -> Host | None:
        """The host that a DAG names; None for this machine and interpreter.

        Raises:
            InputError: it cannot be reached.
        """
        if host.type == "local":
            return None
        with self._lock:
            if host not in self._open:
                self._open[host] = self._opened(host)
            return self._open[host]

    def _opened(self, host: HostSpec) -> Host:
        if host.type in ("python_env", "isolated_ort"):
            return open_host(host.type, host.python, 1, self._memory)
        if self._opener is None:
            raise InputError(f"a {host.type} host cannot be reached from here")
        return self._opener(host, self._home)

    def runtime_of(self, host: HostSpec) -> Mapping[str, Any]:
        """Versions and execution providers of a host, and the CPU of a remote one, asked once; empty for this one.

        Raises:
            InputError: it cannot run what autoopt needs.
        """
        opened = self.of(host)
        if opened is None:
            return {}
        with self._asking:
            if host not in self._runtimes:
                called = opened.runtime()
                if called.value is None:
                    raise InputError(f"cannot work there ({called.message or called.outcome})", where=opened.name)
                self._runtimes[host] = called.value
            return self._runtimes[host]

    def runtimes_of(self, spec: DagSpec) -> dict[str, Mapping[str, Any]]:
        """What `runtime_of` tells of every host that passes run on or the first target measures on, by its name.

        Raises:
            InputError: one cannot run what autoopt needs.
        """
        asked = {spec.all_targets[0].where, *(node.host or spec.host for node in spec.passes.values())}
        found = {opened.name: self.runtime_of(host) for host in asked if (opened := self.of(host)) is not None}
        return dict(sorted(found.items()))

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            for host in self._open.values():
                host.close()
