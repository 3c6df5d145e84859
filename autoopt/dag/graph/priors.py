"""Prior knowledge about chains and values: the user's (`prefer`, `forbid`, `require`, `weights`) and the library's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from autoopt.dag.graph.node_spaces import all_values, same
from autoopt.space import NodeSpace, Point
from autoopt.spec import DagSpec
from autoopt.spec.priors import PreferSpec, PriorSpec

Kind: TypeAlias = Literal["prefer", "forbid", "require"]
Origin: TypeAlias = Literal["user", "library", "learned"]
"""Who states a prior: the user, autoopt's own templates, or earlier runs on similar models."""


@dataclass(frozen=True)
class Scope:
    """The chains that are meant: exactly `chain`, or all that have `nodes`; every chain where both are None."""

    chain: tuple[str, ...] | None = None
    nodes: frozenset[str] | None = None

    def covers(self, path: Sequence[str]) -> bool:
        """Whether the chain with these node ids is meant."""
        if self.chain is not None:
            return tuple(path) == self.chain
        return self.nodes is None or self.nodes <= set(path)

    def to_json(self) -> list[str] | None:
        """As JSON; equal for equal scopes."""
        if self.chain is not None:
            return ["chain", *self.chain]
        return None if self.nodes is None else ["nodes", *sorted(self.nodes)]

    def __str__(self) -> str:
        if self.chain is not None:
            return " -> ".join(self.chain)
        return "every chain" if self.nodes is None else f"chains with {', '.join(sorted(self.nodes))}"


@dataclass(frozen=True)
class Prior:
    """A statement about the chains of a scope, or about the points with `values` in them."""

    kind: Kind
    scope: Scope
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    weight: float = 1.0
    reason: str = ""
    """In the user's or the library's own words."""
    origin: Origin = "user"

    @property
    def text(self) -> str:
        """What to show as the reason of a cut or a pruned chain."""
        if self.origin != "user":
            return self.reason
        verb = {"forbid": "forbidden", "require": "required", "prefer": "preferred"}[self.kind]
        return f"{verb} by a prior" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class Cut:
    """Points of the scope's chains that agree with `values` are invalid."""

    scope: Scope
    values: Mapping[str, Mapping[str, Any]]
    reason: str

    @property
    def single(self) -> tuple[str, str, Any] | None:
        """(node, parameter, value) where it is about one value only."""
        if len(self.values) != 1:
            return None
        ((node, params),) = self.values.items()
        if len(params) != 1:
            return None
        ((name, value),) = params.items()
        return node, name, value

    @property
    def everywhere(self) -> bool:
        """Whether it is about every chain."""
        return self.scope.chain is None and self.scope.nodes is None

    def as_point(self) -> Point:
        return {node: dict(params) for node, params in self.values.items()}


def user_priors(spec: DagSpec) -> tuple[Prior, ...]:
    """The priors of a spec, in the order of its sections."""
    return tuple(_prior(kind, item) for kind in _KINDS for item in getattr(spec, kind))


_KINDS: tuple[Kind, ...] = ("prefer", "forbid", "require")


def _prior(kind: Kind, item: PriorSpec) -> Prior:
    scope = Scope(item.chain, None if item.nodes is None else frozenset(item.nodes))
    weight = item.weight if isinstance(item, PreferSpec) else 1.0
    return Prior(kind, scope, item.values, weight, item.reason)


def cuts_of(priors: Sequence[Prior], spaces: Mapping[str, NodeSpace]) -> tuple[Cut, ...]:
    """The cuts that the priors on values make. A required value cuts every other value of its parameter."""
    return tuple(cut for prior in priors for cut in _cuts(prior, spaces))


def _cuts(prior: Prior, spaces: Mapping[str, NodeSpace]) -> Iterator[Cut]:
    if not prior.values or prior.kind == "prefer":
        return
    if prior.kind == "forbid":
        yield Cut(prior.scope, prior.values, prior.text)
        return
    for node, params in prior.values.items():
        for name, wanted in params.items():
            searched = spaces[node].search.get(name) if node in spaces else None
            for value in all_values(searched):
                if not same(value, wanted):
                    yield Cut(prior.scope, {node: {name: value}}, prior.text)
