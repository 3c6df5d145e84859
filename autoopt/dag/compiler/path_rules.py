"""The rules that look along a path: the state that they keep of the passes so far, and the reasons that end a chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from autoopt.dag.compiler.pass_graph import END, PassGraph
from autoopt.dag.compiler.priors import Cut, Kind, Prior, Scope
from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.compiler.requirements import Requirements
from autoopt.errors import InputError
from autoopt.registry import PassInfo
from autoopt.space import NodeSpace, matches

Matched: TypeAlias = frozenset[tuple[int, str]]
"""(index of the cut, node id) of each part of a cut that the points match."""
PointCounts: TypeAlias = Mapping[Matched, int]
"""Number of points by the parts that they match."""

NO_POINTS_YET: Final[PointCounts] = {frozenset(): 1}
"""The counts of the empty path."""
MAX_SPLIT: Final = 200_000
"""Most points of one node that are checked against cuts."""


class CutCounter:
    """Counts the points of paths under `cuts`, node by node."""

    def __init__(self, cuts: Sequence[Cut], spaces: Mapping[str, NodeSpace]) -> None:
        """Count the points of each node.

        Raises:
            InputError: a node that a cut names has too many points to check.
        """
        self.cuts = cuts
        self._node_counts = {node: self._count_node(node, space) for node, space in spaces.items()}

    def extend(self, counts: PointCounts, node: str) -> PointCounts:
        """The counts of a path after one more node, without the points that a cut of every chain excludes."""
        if not self.cuts:
            return {frozenset(): counts[frozenset()] * self._node_counts[node][frozenset()]}
        extended: Counter[Matched] = Counter()
        for matched, count in counts.items():
            for parts, node_count in self._node_counts[node].items():
                both = matched | parts
                if not parts or not self.excludes(both, lambda scope: scope.everywhere):
                    extended[both] += count * node_count
        return extended

    def excludes(self, matched: Matched, covers: Callable[[Scope], bool]) -> bool:
        """True if points with `matched` match the whole of a cut whose scope `covers` accepts."""
        for index, cut in enumerate(self.cuts):
            if all((index, node) in matched for node in cut.values) and covers(cut.scope):
                return True
        return False

    def _count_node(self, node: str, space: NodeSpace) -> PointCounts:
        parts = {index: {node: cut.values[node]} for index, cut in enumerate(self.cuts) if node in cut.values}
        if not parts:
            return {frozenset(): space.count}
        if space.count > MAX_SPLIT:
            reason = f"priors on values of {node!r} need at most {MAX_SPLIT} points there; it has {space.count}"
            remedy = "search fewer values, or state the prior about one value alone"
            raise InputError(reason, where="dag", remedy=remedy)
        counts: Counter[Matched] = Counter()
        for point in space.iterate():
            counts[frozenset((index, node) for index, part in parts.items() if matches({node: point}, part))] += 1
        return counts


Missing: TypeAlias = tuple[str, ...] | frozenset[str]
"""Nodes that a path lacks to be in a scope: the rest of a whole chain in order, or a set."""


class State(NamedTuple):
    """The state of the rules along a path; paths with equal states have the same futures."""

    present: frozenset[str]
    """Passes that ran, inserted ones too, if a later pass requires them or conflicts with them."""
    missing: tuple[Missing | None, ...]
    """For each scope of a prior or cut: the nodes that the path still lacks, None once it can no longer get them."""
    matched: frozenset[Matched]
    """The combinations of cut values that the points of the path can have."""


@dataclass
class PathRules:
    """Decides about chains one step at a time."""

    graph: PassGraph
    infos: Mapping[str, PassInfo]
    """By node id."""
    verdicts: Mapping[str, Reason]
    """Node id -> the reason why no chain with it can be kept."""
    requirements: Requirements
    priors: Sequence[Prior]
    counter: CutCounter
    """Of the cuts that are not already applied to the nodes' spaces."""
    _inserted: dict[tuple[str, frozenset[str]], tuple[tuple[PassInfo, ...], str]] = field(default_factory=dict)
    _steps: dict[tuple[State, str], State | Reason] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._forbidden = self._chain_priors("forbid")
        required = self._chain_priors("require")
        self._required = [prior for prior in required if prior.scope.chain is None]
        self._required_chains = [prior for prior in required if prior.scope.chain is not None]
        rules: tuple[Prior | Cut, ...] = (*self._forbidden, *self._required, *self._required_chains, *self.counter.cuts)
        self._scopes = tuple(dict.fromkeys(rule.scope for rule in rules if not rule.scope.everywhere))
        self._relevant = {node: self.requirements.relevant(info) for node, info in self.infos.items()}
        self._relevant_after = self._union_ahead(self._relevant)
        self._nodes_after = self._union_ahead({node: frozenset((node,)) for node in self.infos})

    def _chain_priors(self, kind: Kind) -> list[Prior]:
        """The priors of a kind that are about whole chains, rather than about values."""
        return [prior for prior in self.priors if prior.kind == kind and not prior.values]

    def _union_ahead(self, of_node: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        """For each key: the union of `of_node` over all nodes that can follow it."""
        ahead: dict[str, frozenset[str]] = {END: frozenset()}
        for key in reversed(self.graph.order):
            union: frozenset[str] = frozenset()
            for after in self.graph.successors(key):
                if after != END:
                    union |= of_node[self.graph.node_of[after]] | ahead[after]
            ahead[key] = union
        return ahead

    def start(self) -> State:
        """The state before the first pass."""
        missing = tuple(scope.chain or scope.nodes for scope in self._scopes)
        return State(frozenset(), missing, frozenset(NO_POINTS_YET))

    def advance(self, state: State, key: str) -> State | Reason:
        """The state after one more pass, or the reason to prune every chain that begins like this."""
        step = state, key
        if step not in self._steps:
            self._steps[step] = self._advance(state, key)
        return self._steps[step]

    def _advance(self, state: State, key: str) -> State | Reason:
        node = self.graph.node_of[key]
        if node in self.verdicts:
            return self.verdicts[node]
        info = self.infos[node]
        for name in info.conflicts:
            if name in state.present:
                return Reason("conflicts", f"{node} ({info.name}) conflicts with {name}, which runs earlier")
        inserted, problem = self.inserted(node, state.present)
        if problem:
            return Reason("requires", f"{node}: {problem}")
        counts = self.counter.extend(dict.fromkeys(state.matched, 1), node)
        if not counts:
            return Reason("cut", f"{node}: every search point is excluded")
        present = state.present | {info.name} | {required.name for required in inserted}
        missing: list[Missing | None] = []
        for scope, lacking in zip(self._scopes, state.missing, strict=True):
            excluded = node in scope.without
            missing.append(None if excluded else self._still_missing(lacking, node, key))
        # Only what matters to a later pass is part of the state: more would keep equal futures apart.
        return State(present & self._relevant_after[key], tuple(missing), frozenset(counts))

    def _still_missing(self, missing: Missing | None, node: str, key: str) -> Missing | None:
        if isinstance(missing, tuple):
            return missing[1:] if missing[:1] == (node,) else None
        if missing is None or not missing - {node} <= self._nodes_after[key]:
            return None
        return missing - {node}

    def inserted(self, node: str, present: frozenset[str]) -> tuple[tuple[PassInfo, ...], str]:
        """The required passes to insert before `node`, or the reason why that is impossible."""
        key = (node, present & self._relevant[node])
        if key not in self._inserted:
            self._inserted[key] = self.requirements.missing(self.infos[node], key[1])
        return self._inserted[key]

    def finish(self, state: State) -> Reason | None:
        """The reason to prune a complete chain, or None."""
        # "forbid" before "require": its reason says more about a chain that breaks both.
        for prior in self._forbidden:
            if self._covers(prior.scope, state):
                return Reason("forbid", prior.text)
        for prior in self._required:
            if not self._covers(prior.scope, state):
                return Reason("require", f"{prior.text} ({prior.scope})")
        # Several required chains are alternatives: no chain can be more than one of them.
        alternatives = [prior.scope for prior in self._required_chains]
        if alternatives and not any(self._covers(scope, state) for scope in alternatives):
            chains = " or ".join(map(str, alternatives))
            return Reason("require", f"{self._required_chains[0].text} (only {chains})")
        if self.point_count(dict.fromkeys(state.matched, 1), state) == 0:
            return Reason("cut", "every search point is excluded")
        return None

    def point_count(self, counts: PointCounts, state: State) -> int:
        """Number of valid points of a complete chain."""
        total = 0
        for matched, count in counts.items():
            if not self.counter.excludes(matched, lambda scope: self._covers(scope, state)):
                total += count
        return total

    def _covers(self, scope: Scope, state: State) -> bool:
        missing = () if scope.everywhere else state.missing[self._scopes.index(scope)]
        return missing is not None and not missing
