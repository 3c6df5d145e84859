"""The pass graph: a DAG with a virtual start and end, in which every path from start to end is one chain.

Keys of the graph are node ids. Where pass lists need a node more than once (so that two lists that share passes never
give a third chain) the copies are `id#2`, `id#3`, ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import networkx as nx

from autoopt.dag.compiler.priors import KINDS
from autoopt.errors import did_you_mean
from autoopt.space import NodeSpace, Value
from autoopt.spec import DagSpec
from autoopt.spec.source import Place

START: Final = "<start>"
END: Final = "<end>"
MAX_VALUES_IN_MESSAGE: Final = 10


@dataclass(frozen=True)
class PassGraph:
    """`graph`: keys with their successors in the order of the spec; the attribute `node` is the node id of a key."""

    graph: nx.DiGraph

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All keys, parents first."""
        return tuple(nx.topological_sort(self.graph))

    @cached_property
    def node_of(self) -> dict[str, str]:
        """Key -> node id, except START and END."""
        return {key: node or key for key, node in self.graph.nodes(data="node") if key not in (START, END)}

    def successors(self, key: str) -> Iterator[str]:
        """The keys after a key, in the order of the spec."""
        yield from self.graph.successors(key)

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """All edges, sorted."""
        return tuple(sorted(self.graph.edges))

    @property
    def edge_count(self) -> int:
        """Number of edges between passes, without the edges of the virtual start and end."""
        return sum(START not in edge and END not in edge for edge in self.graph.edges)


def build_graph(spec: DagSpec) -> PassGraph:
    """The graph of a spec.

    Raises:
        ConfigError: a cycle.
    """
    if spec.chains is not None:
        return PassGraph(_from_chains(spec.chains))
    if spec.stages is not None:
        return PassGraph(_from_stages(spec.stages))
    return PassGraph(_from_edges(spec))


def _from_chains(chains: Iterable[tuple[str, ...]]) -> nx.DiGraph:
    """A prefix tree: exactly the listed chains, whatever they share."""
    graph = nx.DiGraph()
    copies: Counter[str] = Counter()
    children: dict[tuple[str, str], str] = {}
    for chain in chains:
        key = START
        for node in chain:
            child = children.get((key, node))
            if child is None:
                copies[node] += 1
                child = node if copies[node] == 1 else f"{node}#{copies[node]}"
                children[key, node] = child
                graph.add_node(child, node=node)
                graph.add_edge(key, child)
            key = child
        graph.add_edge(key, END)
    return graph


def _from_stages(stages: tuple[tuple[str | None, ...], ...]) -> nx.DiGraph:
    """Each node precedes the next stage, and later ones if all stages between can be skipped.

    The path without any pass is the source model and not a chain.
    """
    graph = nx.DiGraph()
    following = [END]
    for stage in reversed(((START,), *stages)):
        # What can come at this place: its nodes, and if it can be skipped, what follows.
        options: list[str] = []
        for option in stage:
            if option is None:
                options += following
            else:
                options.append(option)
                graph.add_edges_from((option, after) for after in following)
        following = options
    if graph.has_edge(START, END):
        graph.remove_edge(START, END)
    return graph


def _from_edges(spec: DagSpec) -> nx.DiGraph:
    """The DAG itself; its roots follow the start, its leaves precede the end."""
    paths = spec.edges or ()
    graph = nx.DiGraph()
    for path in paths:
        nx.add_path(graph, path)
    _refuse_cycle(spec, paths, graph)
    roots = [node for node, degree in graph.in_degree if degree == 0]
    leaves = [node for node, degree in graph.out_degree if degree == 0]
    graph.add_edges_from((START, root) for root in roots)
    graph.add_edges_from((leaf, END) for leaf in leaves)
    return graph


def _refuse_cycle(spec: DagSpec, paths: Sequence[tuple[str, ...]], graph: nx.DiGraph) -> None:
    if nx.is_directed_acyclic_graph(graph):
        return
    cycle = nx.find_cycle(graph)
    last = max(index for index, path in enumerate(paths) if set(cycle) & set(pairwise(path)))
    names = " -> ".join([*(node for node, _ in cycle), cycle[0][0]])
    raise spec.error(("edges", last), f"is part of a cycle: {names}", "remove one of these edges")


@dataclass(frozen=True)
class SpecChecks:
    """Raises ConfigError at the line of the mistake."""

    spec: DagSpec
    graph: PassGraph
    spaces: Mapping[str, NodeSpace]

    def check(self) -> None:
        """Check priors, weights and search order.

        Raises:
            ConfigError: a chain that does not exist, a parameter that is not searched, a value that it does not have,
                an order that contradicts a chain.
        """
        for kind in KINDS:
            for index, prior in enumerate(getattr(self.spec, kind)):
                if prior.chain is not None:
                    self._check_chain((kind, index), prior.chain)
                for node, params in prior.values.items():
                    for name, value in params.items():
                        self._check_value((kind, index, "values", node, name), node, value)
        self._check_order()
        self._check_weights()

    def _check_weights(self) -> None:
        for name in self.spec.weights:
            if "->" in name or name in self.spec.passes:
                self._check_chain(("weights", name), list(map(str.strip, name.split("->"))))
            elif len(name) != 16 or not set(name) <= set("0123456789abcdef"):
                raise self.spec.error(("weights", name), "is not a chain", "write its name 'a -> b' or its id")

    def _check_chain(self, place: Place, chain: Sequence[str]) -> None:
        key = START
        for index, node in enumerate(chain):
            by_node = {self.graph.node_of.get(after): after for after in self.graph.successors(key)}
            if node not in by_node:
                beginning = " -> ".join(chain[: index + 1])
                raise self.spec.error(place, f"no chain of this graph begins with {beginning}")
            key = by_node[node]
        if END not in self.graph.successors(key):
            raise self.spec.error(place, f"no chain of this graph ends after {' -> '.join(chain)}")

    def _check_value(self, place: Place, node: str, value: Value) -> None:
        name, search = str(place[-1]), self.spaces[node].search
        if name not in search:
            remedy = did_you_mean(name, search) or f"searched: {', '.join(search) or 'nothing'}"
            raise self.spec.error(place, f"parameter {name!r} is not searched here", remedy)
        if not search[name].offers(value):
            values = search[name].all_values()
            options = ", ".join(map(repr, values[:MAX_VALUES_IN_MESSAGE]))
            if len(values) > MAX_VALUES_IN_MESSAGE:
                options += ", ..."
            raise self.spec.error(place, f"must be one of {options}, not {value!r}")

    def _check_order(self) -> None:
        """Refuse stages whose order contradicts the order of the nodes in a chain."""
        stage_of = self.spec.search.parsed_order().stage_of()
        # Key -> the highest stage on any path to it, and a node of that stage.
        highest: dict[str, tuple[int, str]] = {START: (0, "")}
        for key in self.graph.order:
            stage, last = highest[key]
            node = self.graph.node_of.get(key, "")
            if node in stage_of:
                if stage_of[node] < stage:
                    reason = f"{node!r} comes before {last!r} here, and after it in a chain"
                    raise self.spec.error(("search", "order"), reason, "give the stages in the order of the passes")
                stage, last = stage_of[node], node
            for after in self.graph.successors(key):
                highest[after] = max(highest.get(after, (0, "")), (stage, last))
