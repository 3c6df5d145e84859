"""Look up passes on the hosts that run them, and the earlier passes that they require."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from autoopt.dag.compiler.pruning import Facts, check_pass
from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonValue
from autoopt.registry import REQUIRED, PassInfo, registry
from autoopt.spec import DagSpec
from autoopt.spec.targets import HostSpec
from autoopt.target import Accelerator

Infos: TypeAlias = Callable[[str], PassInfo]
"""Pass name or alias -> its `PassInfo`; raises InputError for an unknown name."""


def pass_infos(accelerator: Accelerator, extra: Mapping[str, PassInfo] | None = None) -> Infos:
    """A look-up from pass name or alias to `PassInfo` for an accelerator; `extra`: passes of a user script, by name."""
    cache = dict(extra or {})

    def info(name: str) -> PassInfo:
        if name not in cache:
            try:
                cache[name] = registry().info(name, accelerator)
            except InputError as error:
                raise InputError(error.what, remedy=did_you_mean(name, cache) or error.remedy) from None
        return cache[name]

    return info


@dataclass
class Requirements:
    """Resolves required and conflicting passes; remembers each look-up."""

    infos: Infos
    facts: Facts
    _looked_up: dict[str, PassInfo | str] = field(default_factory=dict)

    def info(self, name: str) -> PassInfo | str:
        """The `PassInfo` of a pass, or the reason why there is none."""
        if name not in self._looked_up:
            try:
                self._looked_up[name] = self.infos(name)
            except InputError as error:
                self._looked_up[name] = str(error)
        return self._looked_up[name]

    def missing(self, info: PassInfo, present: frozenset[str]) -> tuple[tuple[PassInfo, ...], str]:
        """The passes to insert before `info` in running order, and ""; or nothing, and the reason why it is impossible.

        `present`: names of the passes that ran earlier.
        """
        inserted: dict[str, PassInfo] = {}
        problem = self._collect(info, present, inserted, (info.name,))
        return ((), problem) if problem else (tuple(inserted.values()), "")

    def _collect(
        self, info: PassInfo, present: frozenset[str], inserted: dict[str, PassInfo], above: tuple[str, ...]
    ) -> str:
        """Add the requirements of `info` to `inserted`; return a problem or "". `above`: the passes that require it."""
        for name in info.requires:
            required = self.info(name)
            if isinstance(required, str):
                return f"{info.name} requires {name}, which cannot be inserted: {required}"
            if required.name in present or required.name in inserted:
                continue
            if required.name in above:
                return f"{' -> '.join([*above, required.name])} require each other in a cycle"
            problem = self._collect(required, present, inserted, (*above, required.name))
            if problem:
                return problem
            problem = self._obstacle(required, present | set(inserted))
            if problem:
                return f"{info.name} requires {required.name}, which cannot be inserted: {problem}"
            inserted[required.name] = required
        return ""

    def _obstacle(self, info: PassInfo, present: frozenset[str]) -> str:
        """The reason why a pass cannot be inserted, or ""."""
        reason = check_pass(info, self.facts)
        if reason is not None:
            return reason.text
        for parameter in info.parameters:
            if parameter.default is REQUIRED:
                return f"it needs parameter {parameter.name!r}"
        for name in info.conflicts:
            if name in present:
                return f"it conflicts with {name}"
        return ""

    def resolved(self) -> dict[str, JsonValue]:
        """Each look-up as JSON: the pass with its version and requirements, or the reason why there is none."""
        resolved: dict[str, JsonValue] = {}
        for name, info in sorted(self._looked_up.items()):
            resolved[name] = info if isinstance(info, str) else [info.name, info.version, *info.requires]
        return resolved

    def relevant(self, info: PassInfo) -> frozenset[str]:
        """Names of all passes whose earlier presence matters to `info`, through its requirements too."""
        names: set[str] = set()
        visited: set[str] = set()
        pending = [info]
        while pending:
            current = pending.pop()
            names.update(current.conflicts)
            for name in current.requires:
                required = self.info(name)
                if isinstance(required, str):
                    names.add(name)
                    continue
                names.add(required.name)
                if required.name not in visited:
                    visited.add(required.name)
                    pending.append(required)
        return frozenset(names)


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
