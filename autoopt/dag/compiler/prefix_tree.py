"""Exact counts by dynamic programming over (key of the graph, state of the rules), and lazy listing of the paths."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

import networkx as nx

from autoopt.dag.compiler.pass_graph import END, START
from autoopt.dag.compiler.path_rules import NO_POINTS_YET, Matched, PathRules, PointCounts, State
from autoopt.dag.compiler.pruning import Reason
from autoopt.errors import InputError

Path: TypeAlias = tuple[str, ...]
"""Keys of the graph, without the virtual start and end."""

MAX_STATES: Final = 200_000
KEPT: Final = "<kept>"
"""The end of all kept chains."""


@dataclass(eq=False)
class _Cell:
    """All paths that reach one key with one state: their number and their points."""

    key: str
    state: State
    paths: int = 0
    points_before: int = 0
    """Points without any cut."""
    counts: Counter[Matched] = field(default_factory=Counter)

    def add(self, paths: int, counts: PointCounts, points_before: int) -> None:
        self.paths += paths
        self.points_before += points_before
        self.counts.update(counts)


class PrefixTree:
    """The prefix tree of all chains, folded: paths with equal futures share a cell. Counts are exact integers.

    `_folded` has an edge from each cell to the cells that follow it, to `KEPT` where a kept chain ends, and with the
    attribute `reason` to the next key of the pass graph where chains are pruned.
    """

    def __init__(self, rules: PathRules, sizes: Mapping[str, int]) -> None:
        """Count the chains and points of a graph; `sizes`: points of each node id before any cut.

        Raises:
            InputError: the rules need more than 200,000 states.
        """
        self.rules = rules
        self.graph = rules.graph
        self.chain_count = 0
        self.point_count = 0
        self.points_before = 0
        self.pruned: Counter[Reason] = Counter()
        self._sizes = sizes
        self._index: dict[tuple[str, State], _Cell] = {}
        self._cells: dict[str, list[_Cell]] = {key: [] for key in self.graph.order}
        self._paths_to_end = {END: 1}
        for key in reversed(self.graph.order):
            if key != END:
                self._paths_to_end[key] = sum(map(self._paths_to_end.__getitem__, self.graph.successors(key)))
        self._root = self._cell(START, rules.start())
        self._root.add(1, NO_POINTS_YET, 1)
        self._folded = nx.DiGraph()
        self._folded.add_nodes_from((self._root, KEPT))
        # A cell is complete before its continuations are counted, because parents come first.
        for key in self.graph.order:
            for cell in self._cells[key]:
                for after in self.graph.successors(key):
                    self._step(cell, after)
        self._kept = _leading_to(KEPT, self._folded, self._root)
        self.prefix_nodes: int = sum(cell.paths for cell in self._kept if cell not in (KEPT, self._root))

    def _cell(self, key: str, state: State) -> _Cell:
        cell = self._index.get((key, state))
        if cell is None:
            if len(self._index) >= MAX_STATES:
                raise InputError(
                    f"the rules along a path need more than {MAX_STATES} states",
                    where="dag",
                    remedy="use fewer nodes whose passes conflict or require each other, or fewer priors",
                )
            cell = self._index[key, state] = _Cell(key, state)
            self._cells[key].append(cell)
        return cell

    def _step(self, cell: _Cell, after: str) -> None:
        """Continue the paths of `cell` to the key `after`."""
        outcome = self.rules.finish(cell.state) if after == END else self.rules.advance(cell.state, after)
        if isinstance(outcome, State):
            node = self.graph.node_of[after]
            counts = self.rules.counter.extend(cell.counts, node)
            following = self._cell(after, outcome)
            following.add(cell.paths, counts, cell.points_before * self._sizes[node])
            self._folded.add_edge(cell, following)
        elif isinstance(outcome, Reason):
            self._folded.add_edge(cell, after, reason=outcome)
            self.pruned[outcome] += cell.paths * self._paths_to_end[after]
        else:
            self._folded.add_edge(cell, KEPT)
            self.chain_count += cell.paths
            self.point_count += self.rules.point_count(cell.counts, cell.state)
            self.points_before += cell.points_before

    @property
    def pruned_count(self) -> int:
        return self.pruned.total()

    def kept_paths(self) -> Iterator[Path]:
        """All kept chains, lazily, in the order of the spec."""
        for cells in nx.all_simple_paths(self._kept, self._root, KEPT):
            yield tuple(cell.key for cell in cells[1:-1])

    def pruned_paths(self) -> Iterator[tuple[Path, Reason]]:
        """All pruned chains with their reasons, lazily, in the order of the spec."""
        # After a key where chains are pruned, every continuation to the end is one pruned chain.
        graph = _leading_to(END, nx.compose(self.graph.graph, self._folded), self._root)
        for steps in nx.all_simple_paths(graph, self._root, END):
            reasons = (graph.edges[edge].get("reason") for edge in pairwise(steps))
            path = tuple(step.key if isinstance(step, _Cell) else step for step in steps[1:-1])
            yield path, next(filter(None, reasons))

    def kept_edges(self) -> frozenset[tuple[str, str]]:
        """Edges of the graph that are on a kept chain."""
        return frozenset((cell.key, END if after == KEPT else after.key) for cell, after in self._kept.edges)

    def insertions(self) -> list[tuple[str, str]]:
        """(pass to insert, node id that it precedes) of all kept chains, each once, in order."""
        insertions: dict[tuple[str, str], None] = {}
        for cell in itertools.chain.from_iterable(self._cells.values()):
            if cell not in self._kept:
                continue
            for following in self._kept.successors(cell):
                if following != KEPT:
                    node = self.graph.node_of[following.key]
                    inserted, _ = self.rules.inserted(node, cell.state.present)
                    insertions.update({(info.name, node): None for info in inserted})
        return list(insertions)


def _leading_to(end: str, graph: nx.DiGraph, root: _Cell) -> nx.DiGraph:
    """The root and the part of a graph that leads to `end`, with nodes and edges in the same order."""
    part = nx.ancestors(graph, end) | {end, root}
    leading = nx.DiGraph()
    leading.add_nodes_from(node for node in graph if node in part)
    leading.add_edges_from((start, after, data) for start, after, data in graph.edges(data=True) if after in part)
    return leading
