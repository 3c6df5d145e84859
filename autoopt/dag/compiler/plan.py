"""The plan: the compiled pass graph for one model and target. Immutable; counts are exact, chains are listed lazily."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from autoopt.dag.compiler.chain import Chain
from autoopt.dag.compiler.chain_builder import ChainMaker
from autoopt.dag.compiler.prefix_tree import Tree
from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.graph.pass_graph import PassGraph
from autoopt.space import NodeSpace
from autoopt.spec import DagSpec

LISTED: Final = 1000
"""How many chains are listed where no limit is given."""


@dataclass(frozen=True)
class Pruned:
    """A chain that is left out, by which rule and why."""

    name: str
    rule: str
    reason: str

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "rule": self.rule, "reason": self.reason}


@dataclass(frozen=True)
class Inserted:
    """A required pass that the user did not write, run as `node` before `before` in the chains that lack it."""

    node: str
    pass_name: str
    before: str

    def to_json(self) -> dict[str, str]:
        return {"node": self.node, "pass": self.pass_name, "before": self.before}


@dataclass(frozen=True)
class Decision:
    """Something that autoopt decided when it proposed a graph, and why."""

    what: str
    why: str

    def to_json(self) -> dict[str, str]:
        return {"what": self.what, "why": self.why}


@dataclass(frozen=True)
class Plan:
    """What will be tried. `digest` is the same for the same graph, however it was written."""

    name: str
    digest: str
    spec: DagSpec
    graph: PassGraph
    spaces: Mapping[str, NodeSpace]
    """By node id, before any cut."""
    chain_count: int
    point_count: int
    points_before: int
    """Points of the kept chains before single ones were cut."""
    prefix_nodes: int
    """Pass runs' places: nodes of the prefix tree of the kept chains."""
    pruned_count: int
    pruned_by_rule: Mapping[str, int]
    inserted: tuple[Inserted, ...]
    warnings: tuple[str, ...]
    _tree: Tree = field(repr=False, compare=False)
    _maker: ChainMaker = field(repr=False, compare=False)
    decisions: tuple[Decision, ...] = ()
    """Of a graph that autoopt proposed; empty for one that the user wrote."""
    learned: tuple[str, ...] = ()
    """What earlier runs on similar models made autoopt prefer."""

    def chains(self, limit: int | None = None) -> Iterator[Chain]:
        """The kept chains, lazily, in the order of the graph; at most `limit`."""
        return (self._maker.chain(path) for path in islice(self._tree.kept(), limit))

    def pruned(self, limit: int | None = None) -> Iterator[Pruned]:
        """The pruned chains with the reason of each, lazily; at most `limit`."""
        for path, reason in islice(self._tree.pruned_paths(), limit):
            yield Pruned(self._maker.name(path), reason.rule, reason.text)

    def pass_of(self, node: str) -> str:
        """The name of a node's pass, whatever alias the user wrote."""
        return self._maker.rules.infos[node].name

    @property
    def aliases(self) -> dict[str, dict[str, Any]]:
        """Node id -> what the name that the user wrote stands for: `{"written", "pass", "params"}`."""
        written = {node: spec.pass_name for node, spec in self.spec.passes.items()}
        return {
            node: {"written": name, "pass": self.pass_of(node), "params": dict(self._maker.rules.infos[node].presets)}
            for node, name in written.items()
            if name != self.pass_of(node)
        }

    @property
    def pruned_by_reason(self) -> Mapping[Reason, int]:
        """How many chains each reason prunes, most first; of several reasons the first along the path counts."""
        return dict(self._tree.pruned.most_common())

    @property
    def kept_edges(self) -> frozenset[tuple[str, str]]:
        """Edges of the graph that are on a kept chain, those of the virtual start and end too."""
        return self._tree.kept_edges()

    @property
    def kept_keys(self) -> frozenset[str]:
        """Keys of the graph that are on a kept chain."""
        return frozenset(key for edge in self.kept_edges for key in edge)

    def to_json(self, limit: int | None = LISTED) -> dict[str, Any]:
        """The plan as JSON, with at most `limit` chains and pruned chains; the counts are of all."""
        chains = list(self.chains(limit))
        return {
            "dag": self.name,
            "digest": self.digest,
            "chain_count": self.chain_count,
            "point_count": self.point_count,
            "points_before": self.points_before,
            "prefix_nodes": self.prefix_nodes,
            "edges": self.graph.edge_count,
            "chains": [c.to_json() for c in chains],
            "pruned": [p.to_json() for p in self.pruned(limit)],
            "pruned_count": self.pruned_count,
            "pruned_by_rule": dict(self.pruned_by_rule),
            "inserted": [i.to_json() for i in self.inserted],
            "cut": [cut.to_json() for c in chains for cut in c.cuts],
            "warnings": list(self.warnings),
            "nodes": {node: self.pass_of(node) for node in self.spec.passes},
            **({"aliases": self.aliases} if self.aliases else {}),
            "decided": [d.to_json() for d in self.decisions],
            "learned": self._learned(chains),
        }

    def _learned(self, chains: list[Chain]) -> list[dict[str, Any]]:
        """The chains that experience prefers, with their weights and the points to try first."""
        if not self.learned:
            return []
        whys = {name: why for why in self.learned for name in (why.partition(": ")[0],)}
        return [
            {"chain": c.id, "name": c.name, "weight": c.weight, "prior": list(c.prior), "reason": whys[c.name]}
            for c in chains
            if c.name in whys
        ]
