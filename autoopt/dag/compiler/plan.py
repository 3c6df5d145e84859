"""The plan: the compiled pass graph for one model and target. Immutable; counts are exact, chains are listed lazily."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Final

from autoopt.dag.compiler.chain import ARROW, Chain, ChainBuilder
from autoopt.dag.compiler.node_spaces import NamedFile
from autoopt.dag.compiler.pass_graph import PassGraph
from autoopt.dag.compiler.prefix_tree import PrefixTree
from autoopt.dag.compiler.priors import Prior, Values
from autoopt.dag.compiler.pruning import Reason, Rule
from autoopt.json_codec import JsonValue, to_json
from autoopt.registry import PassInfo
from autoopt.space import NodeSpace, Point, Value
from autoopt.spec import DagSpec
from autoopt.spec.targets import HostSpec

MAX_SEARCHED: Final = 10_000
"""Chains that one run searches; a plan may count more."""
HTML_ROWS: Final = 30
"""Chains that notebooks show."""
DEFAULT_LIMIT: Final = 1000
"""Number of chains in the JSON of a plan if no limit is given."""


@dataclass(frozen=True)
class Pruned:
    """A chain that is not tried, with the rule and the reason."""

    name: str
    rule: Rule
    reason: str


@dataclass(frozen=True)
class Inserted:
    """A required pass that the spec does not have; runs as `node` before `before` in the chains that lack it."""

    node: str
    pass_name: str
    before: str
    host: HostSpec = field(default_factory=HostSpec)

    def to_json(self) -> dict[str, JsonValue]:
        """The pass as JSON; with `host` if it is not this interpreter."""
        data: dict[str, JsonValue] = {"node": self.node, "pass": self.pass_name, "before": self.before}
        if self.host.elsewhere:
            data["host"] = self.host.elsewhere
        return data


@dataclass(frozen=True)
class Decision:
    """A decision of autoopt when it proposed a graph, and the reason."""

    what: str
    why: str
    is_detail: bool = False
    """True for what the user cannot change or need not know before a run, which does not mention it."""
    tried: str = ""
    """The passes or values that it leads to, in a few words: a run prints all decisions in one line."""


@dataclass(frozen=True)
class Learned:
    """A point that earlier measurements put among the first, with the evidence."""

    chain_id: str
    chain: tuple[str, ...]
    """Node ids of the spec, in order."""
    point: Point
    evidence: str = ""
    expected: float | None = None
    """Ratio that the point is expected to reach, where a run with the same question measured it."""

    @property
    def text(self) -> str:
        """The evidence with the chain that it is about."""
        return f"{ARROW.join(self.chain)}: {self.evidence}"

    def to_json(self) -> dict[str, JsonValue]:
        """The point as JSON."""
        record: dict[str, JsonValue] = {"chain": self.chain_id, "name": ARROW.join(self.chain)}
        record |= {"point": to_json(self.point), "reason": self.text}
        if self.expected is not None:
            record["expected"] = self.expected
        return record

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Learned:
        """Reverse `to_json`."""
        name = str(record["name"])
        chain, evidence = tuple(name.split(ARROW)), str(record["reason"]).removeprefix(f"{name}: ")
        return Learned(str(record["chain"]), chain, record["point"], evidence, record.get("expected"))


@dataclass(frozen=True)
class Alias:
    """A name in the spec for a pass with parameters."""

    written: str
    pass_name: str
    params: Mapping[str, Value]

    def to_json(self) -> dict[str, JsonValue]:
        return {"written": self.written, "pass": self.pass_name, "params": dict(self.params)}


@dataclass(frozen=True)
class Plan:
    """The chains and points to try. `digest` is the same for the same graph, whatever form the spec has."""

    spec: DagSpec
    digest: str
    spaces: Mapping[str, NodeSpace]
    """By node id, before any cut."""
    warnings: tuple[str, ...]
    _tree: PrefixTree = field(repr=False, compare=False)
    _builder: ChainBuilder = field(repr=False, compare=False)
    files: Mapping[str, Sequence[NamedFile]] = field(default_factory=dict, repr=False)
    """Files and folders that parameters name, by node id."""
    decisions: tuple[Decision, ...] = ()
    """Of a graph that autoopt proposed; empty for the user's own."""
    learned: tuple[Learned, ...] = ()
    """The points to try first, in this order, by what an earlier run measured on the same graph."""
    goal: tuple[str, ...] = field(default=(), compare=False)
    """Objectives and constraints in words."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def graph(self) -> PassGraph:
        return self._tree.graph

    def with_learned(self, learned: Sequence[Learned]) -> Plan:
        """The plan with these points to try first; they do not change the digest."""
        return replace(self, learned=tuple(learned))

    def first_point(self, chain: Chain, values: Values) -> Point | None:
        """The first point of a chain with these values; None if it has none."""
        return self._builder.first_point(chain.space, values)

    @property
    def preferences(self) -> list[Prior]:
        """The chains that a proposal tries earlier or later than others, with the reasons.

        What was measured counts more: chains with learned points are left out.
        """
        learned = {learned.chain for learned in self.learned}
        stated = [prior for prior in self._builder.priors if prior.origin == "library" and prior.kind == "prefer"]
        return [prior for prior in stated if prior.reason and prior.scope.chain not in learned]

    @property
    def chain_count(self) -> int:
        return self._tree.chain_count

    @property
    def point_count(self) -> int:
        return self._tree.point_count

    @property
    def points_before(self) -> int:
        """Points of the kept chains before cuts."""
        return self._tree.points_before

    @property
    def prefix_nodes(self) -> int:
        """Nodes in the prefix tree of the kept chains: places of pass runs."""
        return self._tree.prefix_nodes

    @property
    def pruned_count(self) -> int:
        return self._tree.pruned_count

    @property
    def pruned_by_reason(self) -> Mapping[Reason, int]:
        """Number of chains that each reason prunes, most first; of several reasons the first along the path counts."""
        return dict(self._tree.pruned.most_common())

    @property
    def pruned_by_rule(self) -> Mapping[str, int]:
        """Number of chains that each rule prunes, by the rule's name."""
        by_rule: Counter[str] = Counter()
        for reason, count in self._tree.pruned.items():
            by_rule[reason.rule] += count
        return dict(sorted(by_rule.items()))

    def _repr_html_(self) -> str:
        """The chains with their points and the reasons for pruned ones, for notebooks."""
        from html import escape

        rows = [f"<tr><td>{escape(chain.name)}</td><td>{chain.points}</td></tr>" for chain in self.chains(HTML_ROWS)]
        if self.chain_count > HTML_ROWS:
            rows.append(f"<tr><td>... and {self.chain_count - HTML_ROWS} more</td><td></td></tr>")
        pruned = [f"<li>{count} pruned: {escape(reason.text)}</li>" for reason, count in self.pruned_by_reason.items()]
        title = f"{self.name}: {self.chain_count} chains, {self.point_count} points"
        head = "<tr><th>chain</th><th>points</th></tr>"
        return f"<p>{escape(title)}</p><table>{head}{''.join(rows)}</table><ul>{''.join(pruned)}</ul>"

    def chains(self, limit: int | None = None) -> Iterator[Chain]:
        """The kept chains, lazily, in the order of the spec; at most `limit`."""
        return self._builder.chains(islice(self._tree.kept_paths(), limit))

    @cached_property
    def searched(self) -> Mapping[str, Chain]:
        """The chains that a run searches, by id."""
        return {chain.id: chain for chain in self.chains(MAX_SEARCHED)}

    def pruned(self, limit: int | None = None) -> Iterator[Pruned]:
        """The pruned chains with their reasons, lazily; at most `limit`."""
        for path, reason in islice(self._tree.pruned_paths(), limit):
            yield Pruned(self._builder.name(path), reason.rule, reason.text)

    def pass_info(self, node: str) -> PassInfo:
        """The pass of a node."""
        return self._builder.rules.infos[node]

    @cached_property
    def inserted(self) -> tuple[Inserted, ...]:
        """The required passes that were inserted."""
        inserted = []
        for name, before in self._tree.insertions():
            info = self._builder.rules.requirements.info(name)
            assert isinstance(info, PassInfo), "only passes with a description are inserted"
            host = self._builder.lookup.host_of_required(name)
            inserted.append(Inserted(self._builder.inserted_id(info), name, before, host))
        return tuple(inserted)

    @property
    def aliases(self) -> dict[str, Alias]:
        """Node id -> meaning of the name that the spec uses, for names that are aliases."""
        aliases = {}
        for node, item in self.spec.passes.items():
            info = self.pass_info(node)
            if item.pass_name != info.name:
                aliases[node] = Alias(item.pass_name, info.name, info.presets)
        return aliases

    @cached_property
    def kept_edges(self) -> frozenset[tuple[str, str]]:
        """Edges of the graph that are on a kept chain, edges of the virtual start and end included."""
        return self._tree.kept_edges()

    @property
    def kept_keys(self) -> frozenset[str]:
        """Keys of the graph that are on a kept chain."""
        return frozenset(key for edge in self.kept_edges for key in edge)

    def to_json(self, limit: int | None = DEFAULT_LIMIT) -> dict[str, JsonValue]:
        """The plan as JSON, with at most `limit` chains and pruned chains; the counts include all of them."""
        chains: list[JsonValue] = []
        cuts: list[JsonValue] = []
        for chain in self.chains(limit):
            chains.append(chain.to_json())
            cuts += [cut.to_json() for cut in chain.cuts]
        data: dict[str, JsonValue] = {
            "dag": self.name,
            "digest": self.digest,
            "chain_count": self.chain_count,
            "point_count": self.point_count,
            "points_before": self.points_before,
            "prefix_nodes": self.prefix_nodes,
            "edges": self.graph.edge_count,
            "chains": chains,
            "pruned": to_json(list(self.pruned(limit))),
            "pruned_count": self.pruned_count,
            "pruned_by_rule": dict(self.pruned_by_rule),
            "inserted": [inserted.to_json() for inserted in self.inserted],
            "cut": cuts,
            "warnings": list(self.warnings),
            "nodes": {node: self.pass_info(node).name for node in self.spec.passes},
        }
        data |= self._exceptions()
        data["decided"] = [{"what": decision.what, "why": decision.why} for decision in self.decisions]
        data["learned"] = [learned.to_json() for learned in self.learned]
        return data

    def _exceptions(self) -> dict[str, JsonValue]:
        """Fields that most plans lack: nodes that run elsewhere, nodes named by an alias, the goal."""
        hosts: dict[str, JsonValue] = {}
        for node in self.spec.passes:
            elsewhere = self.spec.host_of(node).elsewhere
            if elsewhere:
                hosts[node] = elsewhere
        aliases: dict[str, JsonValue] = {node: alias.to_json() for node, alias in self.aliases.items()}
        fields: dict[str, JsonValue] = {"hosts": hosts, "aliases": aliases, "goal": list(self.goal)}
        return {name: value for name, value in fields.items() if value}
