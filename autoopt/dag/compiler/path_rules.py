"""The rules that look along a path: what is remembered of the passes so far, and what ends a chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from autoopt.dag.compiler.cut_counts import Matched, Vector, advance_vector, complete, partition
from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.compiler.requirements import Requirements
from autoopt.dag.graph.pass_graph import END, PassGraph
from autoopt.dag.graph.priors import Cut, Prior, Scope
from autoopt.registry import PassInfo
from autoopt.space import NodeSpace

ONE: Final[Vector] = {frozenset(): 1}


class State(NamedTuple):
    """What the rules remember of a path; paths with equal states have the same futures."""

    present: frozenset[str]
    """Passes that ran, inserted ones too, as far as a later pass requires them or conflicts with them."""
    seen: tuple[frozenset[str] | None, ...]
    """For each set of nodes that a prior names: those met so far, None once the set cannot become complete."""
    positions: tuple[int, ...]
    """For each whole chain that a prior names: how many of its nodes are matched, -1 once it cannot be this chain."""
    matched: frozenset[Matched]
    """Which combinations of cut values the points of the path so far can have."""


Step: TypeAlias = "State | Reason"


@dataclass
class PathRules:
    """Everything that decides about a chain, one step at a time."""

    graph: PassGraph
    infos: Mapping[str, PassInfo]
    """By node id."""
    spaces: Mapping[str, NodeSpace]
    """By node id, less the values that are cut in every chain."""
    verdicts: Mapping[str, Reason]
    """Node id -> why no chain with it can be kept."""
    requirements: Requirements
    priors: Sequence[Prior]
    cuts: Sequence[Cut]
    """Those that are not already taken out of `spaces`."""
    _inserted: dict[tuple[str, frozenset[str]], tuple[tuple[PassInfo, ...], str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chain_priors = [p for p in self.priors if not p.values and p.kind != "prefer"]
        scopes = [p.scope for p in self._chain_priors] + [c.scope for c in self.cuts]
        self._chains = tuple(dict.fromkeys(s.chain for s in scopes if s.chain is not None))
        self._sets = tuple(dict.fromkeys(s.nodes for s in scopes if s.nodes is not None))
        self._relevant = {node: self.requirements.relevant(info) for node, info in self.infos.items()}
        self._needed_after = self._look_ahead(lambda node: self._relevant[node])
        self._nodes_after = self._look_ahead(lambda node: frozenset((node,))) if self._sets else {}
        self._partitions = {
            node: partition(node, space, self.cuts) for node, space in self.spaces.items() if node not in self.verdicts
        }

    def _look_ahead(self, of: Callable[[str], frozenset[str]]) -> dict[str, frozenset[str]]:
        """For each key: what some later node brings with it."""
        found: dict[str, frozenset[str]] = {END: frozenset()}
        for key in reversed(self.graph.order):
            later = [n for n in self.graph.next[key] if n != END]
            found[key] = frozenset().union(*(of(self.graph.node_of[n]) | found[n] for n in later))
        return found

    def start(self) -> State:
        """The state before the first pass."""
        return State(frozenset(), (frozenset(),) * len(self._sets), (0,) * len(self._chains), frozenset(ONE))

    def advance(self, state: State, key: str) -> Step:
        """The state after one more pass, or why every chain that begins like this is pruned."""
        node = self.graph.node_of[key]
        if node in self.verdicts:
            return self.verdicts[node]
        info = self.infos[node]
        for name in info.conflicts:
            if name in state.present:
                return Reason("conflicts", f"{node} ({info.name}) conflicts with {name}, which stands earlier")
        inserted, problem = self.inserted(node, state.present)
        if problem:
            return Reason("requires", f"{node}: {problem}")
        vector = self.vector(dict.fromkeys(state.matched, 1), node)
        if not vector:
            return Reason("cut", f"{node}: every point is cut")
        present = (state.present | {info.name} | {i.name for i in inserted}) & self._needed_after[key]
        seen = tuple(self._met(i, met, node, key) for i, met in enumerate(state.seen))
        positions = tuple(self._position(i, at, node) for i, at in enumerate(state.positions))
        return State(present, seen, positions, frozenset(vector))

    def _met(self, index: int, met: frozenset[str] | None, node: str, key: str) -> frozenset[str] | None:
        """What is met of one set of nodes; None where one is neither met nor to come."""
        if met is None:
            return None
        wanted = self._sets[index]
        if node in wanted:
            met = met | {node}
        return met if wanted - met <= self._nodes_after[key] else None

    def _position(self, index: int, at: int, node: str) -> int:
        chain = self._chains[index]
        return at + 1 if 0 <= at < len(chain) and chain[at] == node else -1

    def inserted(self, node: str, present: frozenset[str]) -> tuple[tuple[PassInfo, ...], str]:
        """The required passes to insert before `node`, or why that is not possible."""
        key = (node, present & self._relevant[node])
        if key not in self._inserted:
            self._inserted[key] = self.requirements.missing(self.infos[node], key[1])
        return self._inserted[key]

    def vector(self, vector: Vector, node: str) -> Vector:
        """Points by matched cut values, after `node`."""
        return advance_vector(vector, self._partitions[node], self.cuts)

    def finish(self, state: State) -> Reason | None:
        """Why a whole chain is pruned, or None."""
        required = [p for p in self._chain_priors if p.kind == "require"]
        for prior in self._chain_priors:
            if prior.kind == "forbid" and self._covered(prior.scope, state):
                return Reason("forbid", prior.text)
        for prior in required:
            if prior.scope.chain is None and not self._covered(prior.scope, state):
                return Reason("require", f"{prior.text} ({prior.scope})")
        wholes = [p for p in required if p.scope.chain is not None]
        if wholes and not any(self._covered(p.scope, state) for p in wholes):
            return Reason("require", f"{wholes[0].text} (only {' or '.join(str(p.scope) for p in wholes)})")
        if not any(self._valid(m, state) for m in state.matched):
            return Reason("cut", "every point is cut")
        return None

    def points(self, vector: Vector, state: State) -> int:
        """Valid points at the end of a chain."""
        return sum(count for matched, count in vector.items() if self._valid(matched, state))

    def _valid(self, matched: Matched, state: State) -> bool:
        return not any(complete(i, c, matched) and self._covered(c.scope, state) for i, c in enumerate(self.cuts))

    def _covered(self, scope: Scope, state: State) -> bool:
        if scope.chain is not None:
            return state.positions[self._chains.index(scope.chain)] == len(scope.chain)
        return scope.nodes is None or state.seen[self._sets.index(scope.nodes)] == scope.nodes
