"""The pass graph: a DAG with a virtual start and end, in which every path from start to end is one chain.

Keys of the graph are node ids. Where pass lists need a node more than once (so that two lists that share passes never
give a third chain) the copies are `id#2`, `id#3`, ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import networkx as nx

from autoopt.spec import DagSpec

START: Final = "<start>"
END: Final = "<end>"


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
