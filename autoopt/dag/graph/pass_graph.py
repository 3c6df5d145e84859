"""The pass graph as a networkx DAG with a virtual start and end.

Every path from start to end is one chain. Keys of the graph are node ids; where pass lists need a node more than once
(so that two lists that share passes never give a third chain) the copies are `id#2`, `id#3`, ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """`graph`: networkx DAG of keys, from START to END. `node_of`: key -> node id, without START and END."""

    graph: nx.DiGraph
    node_of: Mapping[str, str]

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All keys, parents first."""
        return tuple(nx.topological_sort(self.graph))

    @cached_property
    def next(self) -> Mapping[str, tuple[str, ...]]:
        """The keys after a key, in the order in which the user wrote them."""
        return {key: tuple(self.graph.successors(key)) for key in self.graph}

    @property
    def edge_count(self) -> int:
        """Edges between passes, those of the virtual start and end left out."""
        return sum(1 for a, b in self.graph.edges if a != START and b != END)

    def edges(self) -> list[tuple[str, str]]:
        """All edges, sorted."""
        return sorted(self.graph.edges)


def build_graph(spec: DagSpec) -> PassGraph:
    """The graph that a spec writes.

    Raises:
        ConfigError: a cycle.
    """
    if spec.chains is not None:
        return _from_chains(spec.chains)
    if spec.stages is not None:
        return _from_stages(spec.stages)
    return _from_edges(spec)


def _from_chains(chains: Iterable[tuple[str, ...]]) -> PassGraph:
    """A prefix tree: exactly the listed chains, whatever they share."""
    graph = nx.DiGraph()
    graph.add_nodes_from((START, END))
    node_of: dict[str, str] = {}
    copies: dict[str, int] = {}
    child: dict[tuple[str, str], str] = {}
    for chain in chains:
        at = START
        for node in chain:
            key = child.get((at, node))
            if key is None:
                copies[node] = copies.get(node, 0) + 1
                key = node if copies[node] == 1 else f"{node}#{copies[node]}"
                child[at, node] = key
                node_of[key] = node
                graph.add_edge(at, key)
            at = key
        graph.add_edge(at, END)
    return PassGraph(graph, node_of)


def _from_stages(stages: tuple[tuple[str | None, ...], ...]) -> PassGraph:
    """Each stage's alternatives follow those of the stage before, and of earlier ones where stages between may be
    skipped. The chain without any pass is the source model and no chain."""
    graph = nx.DiGraph()
    graph.add_nodes_from((START, END))
    for index in range(-1, len(stages)):
        before = [START] if index < 0 else [n for n in stages[index] if n is not None]
        for node in before:
            _follow(graph, node, stages[index + 1 :])
    return PassGraph(graph, {n: n for n in graph if n not in (START, END)})


def _follow(graph: nx.DiGraph, node: str, later: tuple[tuple[str | None, ...], ...]) -> None:
    """Edges from `node` into the stages after it: those behind a skip in the place of the skip."""
    reach: list[str] = [END]
    for stage in reversed(later):
        reach = [key for option in stage for key in ([option] if option is not None else reach)]
    graph.add_edges_from((node, key) for key in reach if not (node == START and key == END))


def _from_edges(spec: DagSpec) -> PassGraph:
    """The DAG itself; its roots follow the start, its leaves precede the end."""
    paths = spec.edges or ()
    inner = nx.DiGraph()
    for path in paths:
        inner.add_nodes_from(path)
        inner.add_edges_from(pairwise(path))
    if not nx.is_directed_acyclic_graph(inner):
        cycle = [a for a, _ in nx.find_cycle(inner)]
        text = " -> ".join([*cycle, cycle[0]])
        raise spec.error(_closing(paths, cycle), f"is a cycle: {text}", "remove one of these edges")
    graph = nx.DiGraph()
    graph.add_nodes_from((START, END))
    graph.add_edges_from((START, n) for n in inner if inner.in_degree(n) == 0)
    for node in inner:
        graph.add_edges_from((node, after) for after in inner.successors(node))
    graph.add_edges_from((n, END) for n in inner if inner.out_degree(n) == 0)
    return PassGraph(graph, {n: n for n in inner})


def _closing(paths: tuple[tuple[str, ...], ...], cycle: list[str]) -> tuple[str | int, ...]:
    """The place of the last written edge of a cycle."""
    steps = set(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    last = max(i for i, path in enumerate(paths) if steps & set(pairwise(path)))
    return ("edges", last)
