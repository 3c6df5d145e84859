"""Look up the passes of a DAG on the hosts that run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from autoopt.dag.compiler.requirements import Infos
from autoopt.errors import InputError, did_you_mean
from autoopt.registry import PassInfo
from autoopt.spec import DagSpec
from autoopt.spec.targets import HostSpec

HostPasses: TypeAlias = Callable[[HostSpec], Mapping[str, PassInfo]]
"""Host -> its passes by name and alias; raises InputError if the host does not tell."""


@dataclass
class PassLookup:
    """Looks up passes here first. Another host is asked for what this interpreter lacks or has only as a plug-in.

    A plug-in may have another version on its host, or other parameters.
    """

    spec: DagSpec
    infos: Infos
    host_passes: HostPasses | None = None
    """None if other hosts cannot be asked."""
    _inserted_hosts: dict[str, HostSpec] = field(default_factory=dict)

    def of_node(self, node: str) -> PassInfo:
        """The pass of a node.

        Raises:
            InputError: Neither this interpreter nor the node's host has it.
        """
        return self._on(self.spec.host_of(node), self.spec.passes[node].pass_name)

    def is_left_to_host(self, node: str) -> bool:
        """True if only another host can say which pass a node has."""
        if self.spec.host_of(node).type == "local":
            return False
        try:
            return self.infos(self.spec.passes[node].pass_name).is_plugin
        except InputError:
            return True

    def required(self, name: str) -> PassInfo:
        """A pass that another one requires: of the DAG's host, or else of the first host of a node that has it.

        Raises:
            InputError: No host has it.
        """
        try:
            return self._on(self.spec.host, name)
        except InputError:
            for host in dict.fromkeys(map(self.spec.host_of, self.spec.passes)):
                if name in self._passes_of(host):
                    self._inserted_hosts[name] = host
                    return self._on(host, name)
            raise

    def host_of_required(self, name: str) -> HostSpec:
        """The host that runs a required pass."""
        return self._inserted_hosts.get(name, self.spec.host)

    def _passes_of(self, host: HostSpec) -> Mapping[str, PassInfo]:
        if host.type == "local" or self.host_passes is None:
            return {}
        return self.host_passes(host)

    def _on(self, host: HostSpec, name: str) -> PassInfo:
        try:
            here = self.infos(name)
        except InputError as error:
            there = self._passes_of(host)
            if name in there:
                return _described_by(host, there[name])
            if not there:
                raise
            remedy = did_you_mean(name, there) or error.remedy
            raise InputError(f"{error.what} here and on {host.elsewhere}", remedy=remedy) from None
        if here.available and not here.is_plugin:
            return here
        there = self._passes_of(host)
        if name in there:
            return _described_by(host, there[name])
        return here


def _described_by(host: HostSpec, info: PassInfo) -> PassInfo:
    """The description of a pass by its host, which it names where it says what is missing there."""
    if info.available:
        return info
    return replace(info, missing=f"on {host.elsewhere}, {info.missing}")
