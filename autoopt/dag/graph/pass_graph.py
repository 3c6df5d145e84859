"""The pass graph: a DAG with a virtual start and end, in which every path from start to end is one chain.

Keys of the graph are node ids. Where pass lists need a node more than once (so that two lists that share passes never
give a third chain) the copies are `id#2`, `id#3`, ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.spec import DagSpec

if TYPE_CHECKING:
    import networkx as nx

START: Final = "<start>"
END: Final = "<end>"

Links: TypeAlias = dict[str, dict[str, None]]
"""Key -> keys after it, as an ordered set."""


@dataclass(frozen=True)
class PassGraph:
    """`successors`: key -> keys after it, in the order of the spec. `node_of`: key -> node id, except START and END."""

    successors: Mapping[str, tuple[str, ...]]
    node_of: Mapping[str, str]

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All keys, parents first."""
        pending = Counter(key for after in self.successors.values() for key in after)
        ordered = [START]
        for key in ordered:
            for after in self.successors[key]:
                pending[after] -= 1
                if pending[after] == 0:
                    ordered.append(after)
        return tuple(ordered)

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """All edges, sorted."""
        return tuple(sorted((key, after) for key in self.successors for after in self.successors[key]))

    @property
    def edge_count(self) -> int:
        """Number of edges between passes, without the edges of the virtual start and end."""
        return sum(START not in edge and END not in edge for edge in self.edges)

    @cached_property
    def graph(self) -> nx.DiGraph:
        """The same as a networkx graph, for analyses. Planning itself does without: importing networkx takes longer."""
        import networkx as nx

        graph = nx.DiGraph(self.edges)
        graph.add_nodes_from(self.successors)
        return graph


def build_graph(spec: DagSpec) -> PassGraph:
    """The graph of a spec.

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
    links: Links = {START: {}, END: {}}
    node_of: dict[str, str] = {}
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
                node_of[child] = node
                links[key][child] = None
                links[child] = {}
            key = child
        links[key][END] = None
    return _graph(links, node_of)


def _from_stages(stages: tuple[tuple[str | None, ...], ...]) -> PassGraph:
    """Each node precedes the next stage, and later ones if all stages between can be skipped.

    The path without any pass is the source model and not a chain.
    """
    links: Links = {END: {}}
    following = [END]
    for stage in reversed(((START,), *stages)):
        # What can come at this place: its nodes, and if it can be skipped, what follows.
        options: list[str] = []
        for option in stage:
            if option is None:
                options += following
            else:
                options.append(option)
                links[option] = dict.fromkeys(following)
        following = options
    links[START].pop(END, None)
    return _graph(links)


def _from_edges(spec: DagSpec) -> PassGraph:
    """The DAG itself; its roots follow the start, its leaves precede the end."""
    paths = spec.edges or ()
    links: Links = {}
    inner: set[str] = set()
    for path in paths:
        inner.update(path[1:])
        for node in path:
            links.setdefault(node, {})
        for node, after in pairwise(path):
            links[node][after] = None
    _refuse_cycle(spec, paths, links)
    roots = [node for node in links if node not in inner]
    for followers in links.values():
        if not followers:
            followers[END] = None
    links[START] = dict.fromkeys(roots)
    links[END] = {}
    return _graph(links)


def _refuse_cycle(spec: DagSpec, paths: Sequence[tuple[str, ...]], links: Links) -> None:
    try:
        TopologicalSorter(links).prepare()
    except CycleError as error:
        # The sorter takes the keys after a key for the keys before it, so it names the cycle backwards.
        cycle = error.args[1][::-1]
        steps = set(pairwise(cycle))
        last = max(index for index, path in enumerate(paths) if steps & set(pairwise(path)))
        reason = f"is part of a cycle: {' -> '.join(cycle)}"
        raise spec.error(("edges", last), reason, "remove one of these edges") from None


def _graph(links: Links, node_of: Mapping[str, str] | None = None) -> PassGraph:
    """The graph of these links; without `node_of`, every key is a node id."""
    successors = {key: tuple(after) for key, after in links.items()}
    return PassGraph(successors, node_of or {key: key for key in links if key not in (START, END)})
