"""Prior knowledge about chains and values: the user's (`prefer`, `forbid`, `require`) and the library's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from autoopt.space import NodeSpace, Value, same
from autoopt.spec import DagSpec

Kind: TypeAlias = Literal["prefer", "forbid", "require"]
KINDS: Final[tuple[Kind, ...]] = ("prefer", "forbid", "require")
Origin: TypeAlias = Literal["user", "library"]
"""Source of a prior: the user, or autoopt's own templates."""
Values: TypeAlias = Mapping[str, Mapping[str, Value]]
"""Node id -> parameter -> value."""


@dataclass(frozen=True)
class Scope:
    """The chains that a prior is about: exactly `chain`, or all that have `nodes`; every chain if both are None."""

    chain: tuple[str, ...] | None = None
    nodes: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    """Nodes that a chain of the scope must not have."""

    @property
    def everywhere(self) -> bool:
        """True if the scope is every chain."""
        return self.chain is None and self.nodes is None

    def covers(self, path: Sequence[str]) -> bool:
        """True if the chain with these node ids is in the scope."""
        if self.chain is not None:
            return tuple(path) == self.chain
        return self.nodes is None or (self.nodes <= set(path) and self.without.isdisjoint(path))

    def to_json(self) -> list[str] | None:
        """The scope as JSON; equal for equal scopes."""
        if self.chain is not None:
            return ["chain", *self.chain]
        if self.nodes is not None:
            return ["nodes", *sorted(self.nodes), *(f"not {node}" for node in sorted(self.without))]
        return None

    def __str__(self) -> str:
        if self.chain is not None:
            return " -> ".join(self.chain)
        if self.nodes is not None:
            text = f"chains with {', '.join(sorted(self.nodes))}"
            return f"{text} without {', '.join(sorted(self.without))}" if self.without else text
        return "every chain"


@dataclass(frozen=True)
class Prior:
    """A statement about the chains of a scope; with `values`, about their points that have these values."""

    kind: Kind
    scope: Scope
    values: Values = field(default_factory=dict)
    weight: float = 1.0
    reason: str = ""
    """The reason that the user or the library gave."""
    origin: Origin = "user"

    @property
    def text(self) -> str:
        """The reason to show for a cut or a pruned chain."""
        if self.origin != "user":
            return self.reason
        rule = {"forbid": "excluded by 'forbid'", "require": "excluded by 'require'", "prefer": "preferred"}[self.kind]
        return ": ".join(filter(None, (rule, self.reason)))


@dataclass(frozen=True)
class Cut:
    """A rule by which points with `values` are invalid in the chains of a scope."""

    scope: Scope
    values: Values
    reason: str

    @property
    def single(self) -> tuple[str, str, Value] | None:
        """(node, parameter, value) if the cut is about one value; None if it is about a combination."""
        assignment, *others = self.assignments()
        return None if others else assignment

    def covers(self, path: Sequence[str]) -> bool:
        """True if the rule is about points of the chain with these node ids."""
        return self.scope.covers(path) and set(self.values) <= set(path)

    def assignments(self) -> Iterator[tuple[str, str, Value]]:
        """(node, parameter, value) of each of the values."""
        for node, params in self.values.items():
            for name, value in params.items():
                yield node, name, value


def user_priors(spec: DagSpec) -> tuple[Prior, ...]:
    """The priors of a spec, in the order of its sections."""
    priors = []
    for kind in KINDS:
        for item in getattr(spec, kind):
            scope = Scope(chain=item.chain)
            if item.nodes is not None:
                scope = Scope(nodes=frozenset(item.nodes), without=frozenset(item.without))
            weight = getattr(item, "weight", 1.0)
            priors.append(Prior(kind, scope, item.values, weight, item.reason))
    return tuple(priors)


def cuts_of(priors: Sequence[Prior], spaces: Mapping[str, NodeSpace]) -> tuple[Cut, ...]:
    """The cuts that the priors on values make. A required value cuts every other value of its parameter."""
    cuts: list[Cut] = []
    for prior in priors:
        stated = Cut(prior.scope, prior.values, prior.text)
        if prior.kind == "forbid" and prior.values:
            cuts.append(stated)
        elif prior.kind == "require":
            for node, name, required in stated.assignments():
                others = [v for v in spaces[node].search[name].all_values() if not same(v, required)]
                cuts += [Cut(prior.scope, {node: {name: value}}, prior.text) for value in others]
    return tuple(cuts)
